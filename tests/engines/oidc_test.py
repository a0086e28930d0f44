"""Workers join by tokens of oidc-provider-mock, a provider of the Python package index: tokens of its own code flow, and
what authlib signs in its place (docs/identity.md)."""
import contextlib
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from harness import SOURCE, Skipped, main, require, wait_until
from identity import (AUDIENCE, Group, a_coordinator_that_comes_back_lets_its_workers_in_again, a_good_token_lets_a_worker_in,
                      bad_tokens_are_refused_on_both_sides, decoded, job_with_identity, unsigned,
                      while_the_provider_is_away_workers_stay_and_newcomers_wait)
from ports import free_port

PYTHON = os.environ.get("STARLING_OIDC_PYTHON", os.path.join(SOURCE, "build", "engines", "bin", "python"))


class Provider:
    def __init__(self, place, seconds):
        self.log = open(place.path("provider.log"), "w+")
        self.process = subprocess.Popen([PYTHON, os.path.join(HERE, "oidc_provider.py"), str(free_port()), str(seconds)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.issuer = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        self.log.seek(0)
        require(line, f"the provider has ended: {self.log.read()[-2000:]}")
        return json.loads(line)

    def tell(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def token(self, audience=AUDIENCE):
        return self.tell(token=audience)

    def forge(self):
        return self.tell(forge=AUDIENCE)

    def start(self):
        self.tell(start=True)

    def stop(self):
        self.tell(stop=True)


@contextlib.contextmanager
def provider_at(place, seconds=3600):
    try:
        there = subprocess.run([PYTHON, "-c", "import oidc_provider_mock, authlib"], capture_output=True, timeout=120).returncode == 0
    except OSError:
        there = False
    if not there:
        raise Skipped(f"needs oidc-provider-mock and authlib in {PYTHON} (tools/test.sh --engines; STARLING_OIDC_PYTHON)")
    provider = Provider(place, seconds)
    try:
        yield provider
    finally:
        provider.process.kill()
        provider.process.wait()


def its_tokens_let_workers_in(place):
    with provider_at(place) as provider:
        print(f"head {decoded(provider.token().split('.')[0])}, claims {decoded(provider.token().split('.')[1])}", flush=True)
        a_good_token_lets_a_worker_in(place, provider)


def bad_tokens_are_refused(place):
    with provider_at(place) as provider:
        bad_tokens_are_refused_on_both_sides(place, provider, {
            provider.token("x"): r'the token\'s audience is \["x"\], expected "starling"',
            unsigned(provider.token()): r'the token is not signed \(alg is "none"\)',
            provider.forge(): rf'the token\'s signature is not that of key "[^"]+" of {provider.issuer}'})


def a_token_is_refused_after_its_life(place):
    with provider_at(place, seconds=30) as provider, \
            Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer), 1) as group:
        token = provider.token()
        group.worker(token)
        group.wait_for_step(3)
        expires = decoded(token.split(".")[1])["exp"]
        wait_until(lambda: time.time() > expires, "its end")
        group.worker(token)
        require(group.workers[1].wait(120) == 2, group.text("worker-1.log"))
        said = group.said(1)
        require(len(said) == 1 and said[0].startswith("starling: identity: the token expired "), said)
        told = wait_until(lambda: [t for t in group.warnings() if "the token expired" in t], "the coordinator's line")
        print(said[0], told[0], sep="\n", flush=True)
        group.wait_for_step(group.steps() + 3)


def a_killed_coordinator_lets_its_workers_in_again(place):
    with provider_at(place) as provider:
        a_coordinator_that_comes_back_lets_its_workers_in_again(place, provider)


def it_may_be_away(place):
    with provider_at(place) as provider:
        while_the_provider_is_away_workers_stay_and_newcomers_wait(place, provider)


main(its_tokens_let_workers_in, bad_tokens_are_refused, a_token_is_refused_after_its_life,
     a_killed_coordinator_lets_its_workers_in_again, it_may_be_away)
