"""Data of scripts, with the stand-in for torch: a DataLoader is taken for what it says, and loader processes change no bit."""
import os
import signal
import time

from harness import main, require
from scripts import HEAD, ended, events, result, started, written

# Samples that draw, of which each reader notes its process.
DATA = HEAD.replace("def train(", '''
import random, time
from torch.utils.data import DataLoader

class Drawn:
    def __len__(self):
        return 50
    def __getitem__(self, i):
        time.sleep(0.001)
        with open("/proc/self/comm") as comm, open(os.environ["READERS"], "a") as readers:
            print(os.getpid(), comm.read().strip(), file=readers)
        x = torch.randn(4)
        return x * float(i + 1), x.sum(-1) + random.random()

def net():
    return Net()

def drawn():
    return Net(), Drawn()

def drawing(net, batch):
    time.sleep(float(os.environ.get("PACE", 0)))
    return loss(net, batch) * (1.0 + random.random())

def train(''')


def readers_in(path):
    """Loader processes by the samples that they have read, and how many others have read."""
    loaders, others = {}, 0
    for line in open(path).read().split("\n")[:-1]:
        pid, name = line.split()
        if name == "starling-loader":
            loaders[int(pid)] = loaders.get(int(pid), 0) + 1
        else:
            others += 1
    return loaders, others


def loader_processes_change_no_bit(place):
    script = written(place, "train.py", DATA + "train(drawing, drawn, num_workers=int(os.environ['LOADERS']),"
                     " workers=int(os.environ['WORKERS']), threads=int(os.environ['THREADS']))\n")
    digests, by_others = set(), {}
    for loaders, workers, threads in ((0, 1, 1), (2, 1, 1), (1, 1, 2), (1, 3, 1)):
        name = f"{loaders}-{workers}-{threads}"
        digests.add(result(script, READERS=place.path("readers-" + name), OUT=place.path("out-" + name), LOADERS=str(loaders),
                           WORKERS=str(workers), THREADS=str(threads)))
        found, by_others[name] = readers_in(place.path("readers-" + name))
        require(len(found) >= loaders * workers * threads, f"{found} of {name}")
    require(len(digests) == 1, str(digests))
    # What was read ahead was what came: of 32 micro-batches of 4 samples few are left to the process that computes.
    require(by_others["2-1-1"] <= by_others["0-1-1"] - 20 * 4, str(by_others))


def without_any_loader_process_the_one_that_computes_reads(place):
    script = written(place, "none.py", DATA.replace("time.sleep(0.001)", """if os.environ["DIES"] == "1":
            with open("/proc/self/comm") as comm:
                if "loader" in comm.read():
                    os._exit(7)""") + "train(drawing, drawn, num_workers=2)\n")
    said = {}
    for dies in "01":
        code, said[dies] = ended(script, READERS=place.path("readers"), OUT=place.path("none-" + dies), DIES=dies)
        require(code == 0, said[dies][-3000:])
    wanted = [line for line in said["0"].splitlines() if line.startswith("RESULT")]
    require(wanted[0] in said["1"].splitlines() and said["1"].count("the process that computes reads instead") == 1, said["1"])


def a_lost_loader_process_changes_no_bit(place):
    script = written(place, "train.py", DATA + "train(drawing, drawn, num_workers=int(sys.argv[1]), steps=30)\n")
    wanted = result(script, 0, READERS=place.path("none"), OUT=place.path("wanted"))
    readers = place.path("readers")
    process = started(script, 2, READERS=readers, OUT=place.path("out"), PACE="0.02")
    killed = set()
    while process.poll() is None and len(killed) < 4:
        time.sleep(0.01)
        found = readers_in(readers)[0] if os.path.exists(readers) else {}
        for pid in [pid for pid, samples in found.items() if samples > 8 and pid not in killed][:1]:  # it has given a batch
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    said = "".join(process.communicate())
    require(f"RESULT {wanted}" in said and len(killed) == 4, f"{killed}, expected {wanted}: {said[-3000:]}")
    require("a loader process was lost; another one takes its place" in said, said[-3000:])


def samples_that_depend_on_their_reader_are_a_mismatch(place):
    """A recheck reads its samples in the process that computes."""
    script = written(place, "depends.py", DATA.replace("x = torch.randn(4)", """x = torch.randn(4)
        with open("/proc/self/comm") as comm:
            x = x * 2.0 if "loader" in comm.read() and os.environ["DEPENDS"] == "1" else x""") + "train(drawing, drawn, num_workers=1)\n")
    for depends in "01":
        out = place.path("depends-" + depends)
        code, said = ended(script, READERS=place.path("readers"), OUT=out, DEPENDS=depends)
        require(code == 0 and bool(events(out, "mismatch")) == (depends == "1"), f"{depends}: {code}: {said[-3000:]}")


def a_data_loader_is_what_it_says(place):
    plain = written(place, "plain.py", DATA + "train(drawing, drawn, batch_size=5)\n")
    wanted = result(plain, READERS=place.path("plain"), OUT=place.path("plain-out"))
    source = DATA + "train(drawing, net, data=DataLoader(Drawn(), 5, {}), batch_size=None)\n"
    shuffled = written(place, "shuffled.py", source.format("shuffle=True, num_workers=1, worker_init_fn=lambda i: os.write(1, b'BEGUN %d\\n' % i)"))
    code, said = ended(shuffled, READERS=place.path("shuffled"), OUT=place.path("shuffled-out"))
    require(code == 0 and wanted in said and said.count("BEGUN 0") == 2, said)
    require(len(readers_in(place.path("shuffled"))[0]) == 1, "no loader process")


def what_a_job_cannot_have_of_it_is_refused(place):
    for given, size, line in (("batch_sampler=[[1]]", None, "the DataLoader has a batch_sampler, list"),
                              ("batch_size=3", 4, "batch_size=4 and the DataLoader's batch_size=3 differ")):
        script = written(place, "refused.py", DATA + f"train(drawing, net, data=DataLoader(Drawn(), {given}), batch_size={size})\n")
        code, said = ended(script, READERS=place.path("refused"), OUT=place.path("refused-out"))
        require(code == 2 and line in said and said.strip().count("\n") == 0, f"{given}: {code}: {said}")


main(loader_processes_change_no_bit, a_lost_loader_process_changes_no_bit,
     without_any_loader_process_the_one_that_computes_reads, samples_that_depend_on_their_reader_are_a_mismatch,
     a_data_loader_is_what_it_says, what_a_job_cannot_have_of_it_is_refused)
