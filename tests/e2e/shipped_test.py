"""The shipped command has no means to break a promise; the breakable one of the tests has."""
import os
import subprocess

import harness
from harness import STARLING, main, require, sabotage, same

BREAKABLE = os.path.join(os.path.dirname(STARLING), "starling-breakable")
KINDS = ("drop-micro-batch", "double-total", "stale-parameters", "accept-any-total", "flip-state", "flip-sums", "flip-total",
         "flip-parameters", "flip-owned", "flip-copy", "multiply-wrongly", "corrupt-replica", "hang-computing", "hang-data-plane", "ignore-fence",
         "leave-process", "accept-stranger")


def the_command_has_no_word_of_it(place):
    words = KINDS + ("STARLING_SABOTAGE",)
    version = subprocess.run([STARLING, "version"], capture_output=True, text=True).stdout
    if ", Release" in version:
        words += ("sabotage",)  # nor a function: the compiler dropped all calls of the empty ones
    with open(BREAKABLE, "rb") as file:
        breakable = file.read()
    require(all(word.encode() in breakable for word in words), "the breakable command lacks a word")
    with open(STARLING, "rb") as file:
        shipped = file.read()
    found = [word for word in words if word.encode() in shipped]
    require(not found, f"{STARLING} contains {found}")


def an_order_is_not_read(place):
    job = place.job(steps=60)
    quiet = place.quiet(job)
    with sabotage("double-total@20"):
        run = place.run(job, "--workers", 2)
    same(run, quiet)
    harness.STARLING = BREAKABLE
    try:
        with sabotage("double-total@20"):
            broken = place.run(job, "--workers", 2)
    finally:
        harness.STARLING = STARLING
    require(broken.digest() != quiet.digest(), "the breakable command did not do it either")


main(the_command_has_no_word_of_it, an_order_is_not_read)
