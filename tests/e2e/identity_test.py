"""Workers join by tokens of an OIDC provider: a small one of this test, whose tokens openssl signs."""
import contextlib
import http.server
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

from harness import LONG_LEASE_MS, STARLING, alive, children_of, main, require, wait_until, written
from identity import (AUDIENCE, Group, a_coordinator_that_comes_back_lets_its_workers_in_again, a_good_token_lets_a_worker_in,
                      bad_tokens_are_refused_on_both_sides, encoded, job_with_identity, unsigned,
                      while_the_provider_is_away_workers_stay_and_newcomers_wait)
from ports import free_port


def openssl(*words, data=None):
    done = subprocess.run(["openssl", *words], input=data, capture_output=True, timeout=60)
    require(done.returncode == 0, f"openssl {words}: {done.stderr.decode()}")
    return done.stdout


class Key:
    def __init__(self, place, name):
        self.name, self.path = name, place.path(f"provider-{name}.pem")
        openssl("genrsa", "-out", self.path, "2048")

    def jwk(self):
        modulus = openssl("rsa", "-in", self.path, "-noout", "-modulus").decode().strip().removeprefix("Modulus=")
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.name, "n": encoded(bytes.fromhex(modulus)), "e": "AQAB"}

    def token(self, claims, kid=None):
        text = f"{encoded({'alg': 'RS256', 'typ': 'JWT', 'kid': kid or self.name})}.{encoded(claims)}"
        return f"{text}.{encoded(openssl('dgst', '-sha256', '-sign', self.path, data=text.encode()))}"


class Provider:
    """Discovery and a key set. `certificate`: of its name, for https."""

    def __init__(self, place, certificate=None):
        self.certificate, self.port = certificate, free_port()
        self.issuer = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        self.key, self.other = Key(place, "k1"), Key(place, "k2")
        self.keys, self.asked, self.server = [self.key], [], None
        self.start()

    def start(self):
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                provider.asked.append(self.path)
                pages = {"/.well-known/openid-configuration": {"issuer": provider.issuer, "jwks_uri": f"{provider.issuer}/keys"},
                         "/keys": {"keys": [key.jwk() for key in provider.keys]}}
                body = json.dumps(pages.get(self.path, {})).encode()
                self.send_response(200 if self.path in pages else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        self.server = None

    def claims(self, **changes):
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": [AUDIENCE], "sub": "system:serviceaccount:train:worker", "iat": now, "nbf": now,
                  "exp": now + 3600, "kubernetes.io": {"namespace": "train", "serviceaccount": {"name": "worker"}}}
        return {name: value for name, value in {**claims, **changes}.items() if value is not None}

    def token(self, **changes):
        return self.key.token(self.claims(**changes))


@contextlib.contextmanager
def provider_at(place, certificate=None):
    provider = Provider(place, certificate)
    try:
        yield provider
    finally:
        provider.stop()


def workers_without_a_key_train_as_others_do(place):
    with provider_at(place) as provider:
        a_good_token_lets_a_worker_in(place, provider)


def each_bad_token_is_refused_in_one_line_on_both_sides(place):
    with provider_at(place) as provider:
        good, now = provider.token(), int(time.time())
        bad_tokens_are_refused_on_both_sides(place, provider, {
            provider.token(aud="x"): r'the token\'s audience is \["x"\], expected "starling"',
            provider.token(exp=now - 100, iat=now - 1000, nbf=now - 1000): r"the token expired \d+ s ago, at \S+Z",
            unsigned(good): r'the token is not signed \(alg is "none"\)',
            provider.other.token(provider.claims(), kid="k1"): rf'the token\'s signature is not that of key "k1" of {provider.issuer}',
            provider.other.token(provider.claims()): rf'the token is signed by key "k2", which {provider.issuer} does not have',
            provider.token(iss="http://127.0.0.1"): rf'the token\'s issuer is "http://127.0.0.1", expected "{provider.issuer}"'})
        # Nothing but tokens of unknown keys has it asked again, and those every five seconds at most.
        require(len(provider.asked) <= 12, provider.asked)


def a_token_is_good_until_it_expires_and_its_worker_longer(place):
    with provider_at(place) as provider, \
            Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer), 1) as group:
        token = provider.token(exp=int(time.time()) + 20)
        group.worker(token)
        group.wait_for_step(3)
        group.worker(token)  # of another life, while it is good
        wait_until(lambda: len(group.joined()) == 2, "a second worker with the same token")
        wait_until(lambda: time.time() > json_of(token)["exp"], "its end")
        group.worker(token)
        require(group.workers[2].wait(120) == 2, group.text("worker-2.log"))
        said = group.said(2)
        require(len(said) == 1 and re.fullmatch(r"starling: identity: the token expired \d+ s ago, at \S+Z", said[0]), said)
        wait_until(lambda: any("the token expired" in text for text in group.warnings()), "the coordinator's line")
        now = group.steps()
        group.wait_for_step(now + 5)
        require(group.events("step")[-1]["world"] == 2, "a worker whose token has expired is out")


def json_of(token):
    from identity import decoded
    return decoded(token.split(".")[1])


def claims_that_the_job_lists_decide(place):
    rules = '[identity.claims]\nsub = ["system:serviceaccount:train:worker", "x"]\n"kubernetes.io".namespace = "train"\n'
    with provider_at(place) as provider, \
            Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer, rules), 1) as group:
        group.worker(provider.token())
        group.wait_for_step(2)
        for claims, line in (({"kubernetes.io": {"namespace": "other"}},
                              'the token\'s claim "kubernetes.io".namespace is "other", expected "train"'),
                             ({"sub": None}, 'the token has no claim sub, expected one of ["system:serviceaccount:train:worker","x"]')):
            number = group.count
            group.worker(provider.token(**claims))
            require(group.workers[number].wait(120) == 2, group.text(f"worker-{number}.log"))
            require(group.said(number) == [f"starling: identity: {line}"], group.text(f"worker-{number}.log"))


def a_killed_coordinator_lets_its_workers_in_again(place):
    with provider_at(place) as provider:
        a_coordinator_that_comes_back_lets_its_workers_in_again(place, provider)


def each_of_three_coordinators_gives_a_worker_the_same_name(place):
    job = place.job(steps=300, lease_ms=LONG_LEASE_MS)
    digest = place.quiet(job).digest()
    with provider_at(place) as provider, \
            Group(place, job_with_identity(place, job, provider.issuer), 2, coordinators=3) as group:
        for _ in range(2):
            group.worker(provider.token())
        group.wait_for_step(20)

        def let_in(log, begin=0):  # a worker and its guard each show a token, under one key
            return set(re.findall(r"let in (worker-\d+) from", group.text(log)[begin:]))
        logs = ["coordinator.log", "coordinator-1.log", "coordinator-2.log"]
        wait_until(lambda: all(len(let_in(log)) >= 2 for log in logs), "all")
        names = [let_in(log) for log in logs]
        require(names[0] == set(group.joined()) and names[1:] == names[:1] * 2, names)
        group.others[1].kill()
        group.others[1].wait()
        before = len(group.text(logs[1]))
        group.start_coordinator(number=1)
        wait_until(lambda: let_in(logs[1], before) == names[0], "they are let in again")
        require(group.digest() == digest, "another digest")


def a_provider_that_is_away_is_told_and_waited_for(place):
    with provider_at(place) as provider:
        while_the_provider_is_away_workers_stay_and_newcomers_wait(place, provider)


def tokens_of_unknown_keys_hold_up_no_others(place):
    with provider_at(place) as provider, \
            Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer), 1) as group:
        group.worker(provider.token())
        group.wait_for_step(3)
        time.sleep(6)  # the provider may be asked again
        provider.stop()
        with socket.create_server(("127.0.0.1", provider.port)):  # and does not answer
            for n in range(4):
                group.worker(provider.other.token(provider.claims(), kid=f"z{n}"), "--wait", 300)
            time.sleep(1)
            group.worker(provider.token(), "--wait", 300)
            wait_until(lambda: len(group.joined()) == 2, "the worker whose key is known", seconds=20, of=group.workers[-1])


def a_guard_tells_the_death_of_a_worker_with_a_token(place):
    with provider_at(place) as provider, \
            Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer), 2) as group:
        for _ in range(3):
            group.worker(provider.token())
        wait_until(lambda: len(group.joined()) == 3, "three workers")
        group.wait_for_step(group.steps() + 3)
        killed = children_of(group.workers[0].pid)[0]
        os.kill(killed, signal.SIGKILL)
        require(group.workers[0].wait(120) == 128 + signal.SIGKILL, group.text("worker-0.log"))
        lost = wait_until(lambda: [e for e in group.events("worker") if e["what"] == "lost"], "the loss")
        group.wait_for_step(group.steps() + 3)
        require(not alive(killed) and len(lost) == 1, lost)


def providers_keys_change_and_their_certificate_is_checked(place):
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", place.path("tls.key"), "-out", place.path("tls.pem"),
            "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    job = place.waiting_job(steps=100000)
    with provider_at(place, (place.path("tls.pem"), place.path("tls.key"))) as provider:
        identity = job_with_identity(place, job, provider.issuer)
        with Group(place, identity, 1, "--identity-ca", place.path("tls.pem")) as group:
            group.worker(provider.token())
            group.wait_for_step(2)
            provider.keys = [provider.other]
            group.worker(provider.other.token(provider.claims()))
            wait_until(lambda: len(group.joined()) == 2, "one with the new key")
        with Group(place, identity, 1) as group:
            group.worker(provider.other.token(provider.claims()), "--wait", 8)
            require(group.workers[0].wait(120) == 3, group.text("worker-0.log"))
            require("certificate" in group.text("worker-0.log") and "(--identity-ca names a file of certificates to trust)" in
                    group.text("worker-0.log"), group.text("worker-0.log"))
        # Where the keys lie in a file, the provider is not asked.
        written(place, "keys.json", json.dumps({"keys": [provider.key.jwk()]}))
        asked = len(provider.asked)
        with Group(place, job_with_identity(place, job, provider.issuer, f'jwks = "{place.path("keys.json")}"'), 1) as group:
            group.worker(provider.token())
            group.wait_for_step(2)
        require(len(provider.asked) == asked, provider.asked)


def what_does_not_fit_together_is_refused_at_once(place):
    job = place.job()
    with provider_at(place) as provider, Group(place, job_with_identity(place, job, provider.issuer), 1) as group:
        token = written(place, "a-token", provider.token())
        for words, line in (
                (("worker", "--join", group.join), "the join line is a public one, without a key; --identity-token says which"),
                (("worker", "--join", group.join, "--identity-token", place.path("none")), "identity: cannot read the token in "),
                (("worker", "--join", group.join, "--identity-token", written(place, "empty", "\n")), "identity: no token is in "),
                (("worker", "--join", group.join, "--identity-token", written(place, "long", "x" * 20000)), "has more than 15 KiB"),
                (("worker", "--join", group.path("keys/worker-0.token"), "--identity-token", token), "has a worker's key"),
                (("worker", "--join", group.address, "--identity-token", token), "needs --join of a public join line"),
                (("worker", "--join", group.join, "--identity-token", token, "--keys", group.path("keys/worker-0")),
                 "--keys and --name are not wanted beside it"),
                (("coordinator", "--job", job, "--keys", group.path("keys/coordinator-0"), "--identity-ca", token, "--state",
                  place.path("s")), "--identity-ca is wanted by a job with [identity]"),
                (("coordinator", "--job", group.job, "--keys", group.path("keys/coordinator-0"), "--identity-ca",
                  place.path("none"), "--state", place.path("s2")), "expected the certificates of an identity provider's CA")):
            done = subprocess.run([STARLING, *words], capture_output=True, text=True, timeout=60, cwd=place.folder)
            require(done.returncode == 2 and line in done.stderr and len(done.stderr.splitlines()) == 1,
                    f"{words}: {done.returncode} {done.stderr}")
        # Without [identity] the same line and token are a stranger's.
        plain = Group(place, job, 1)
        with plain:
            plain.worker(provider.token())
            require(plain.workers[0].wait(120) == 2, plain.text("worker-0.log"))
            require("this key is not on the coordinators' list" in plain.text("worker-0.log"), plain.text("worker-0.log"))
            plain.workers.clear()


main(workers_without_a_key_train_as_others_do, each_bad_token_is_refused_in_one_line_on_both_sides,
     claims_that_the_job_lists_decide, a_killed_coordinator_lets_its_workers_in_again,
     a_provider_that_is_away_is_told_and_waited_for, tokens_of_unknown_keys_hold_up_no_others,
     a_guard_tells_the_death_of_a_worker_with_a_token, providers_keys_change_and_their_certificate_is_checked,
     what_does_not_fit_together_is_refused_at_once,
     long=(each_of_three_coordinators_gives_a_worker_the_same_name,
           a_token_is_good_until_it_expires_and_its_worker_longer))
