"""On a file system without flock() a run trains, or says what the file system lacks; its folder is not "in use"."""
from faults import preloaded
from harness import PATIENCE, environment, require


def a_new_folder_is_not_in_use(place):
    with environment(**preloaded(place, flock="1")):
        run = place.run(place.job(steps=20), "--workers", 2)
        code = run.process.wait(PATIENCE)
    require(code == 0 or code == 2 and "lock" in run.text().lower(), f"exit code {code}: {run.text()}")
    require("in use" not in run.text(), run.text())
