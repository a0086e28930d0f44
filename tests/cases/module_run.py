"""A script that is started with -m, or by a symbolic link, finds its modules in the workers as it does here; one that is
in no file is refused, as no worker could run it."""
import os
import subprocess
import sys

from harness import PATIENCE, STARLING, require
from scripts import HEAD, PATHS, result, written


def a_module_and_a_link_train_as_a_file_does(place):
    written(place, "package/__init__.py", "")
    written(place, "package/parts.py", HEAD)
    written(place, "package/train.py", "from . import parts\nparts.train()\n")
    plain = written(place, "package/plain.py", "import parts\nparts.train()\n")
    os.mkdir(place.path("links"))
    os.symlink("../package/plain.py", place.path("links/train.py"))
    digest = result(plain, OUT=place.path("out-0"))
    require(result(place.path("links/train.py"), OUT=place.path("out-1")) == digest, "another digest by a link")
    module = result("-m", "package.train", folder=place.folder, OUT=place.path("out-2"))
    require(module == digest, "another digest with -m")


def a_path_may_have_a_blank_and_an_accent(place):
    """That of the script, of what it imports, of its folder and of what the run writes."""
    written(place, "mes données/modèle.py", HEAD)
    written(place, "mes données/paquet_é/__init__.py", "")
    written(place, "mes données/paquet_é/entraîner.py", "import modèle\nmodèle.train()\n")
    script = written(place, "mes données/l'entraînement 1.py", "import modèle\nmodèle.train()\n")
    plain = result(written(place, "plain.py", HEAD + "train()\n"), OUT=place.path("out-0"))
    for variables in ({}, {"LC_ALL": "C"}):
        out = place.path(f"mes données/sortie {len(variables)}")
        require(result(script, WORKERS="2", OUT=out, **variables) == plain, f"another digest with {variables}")
        require(os.path.exists(os.path.join(out, "model.safetensors")), "the model is not there")
        name = os.path.basename(script)
        require(result(name, folder=os.path.dirname(script), OUT=out + "-2", **variables) == plain, "in its folder")
    module = result("-m", "paquet_é.entraîner", folder=place.path("mes données"), OUT=place.path("out-m"))
    require(module == plain, "another digest with -m")


def what_is_piped_in_needs_a_file(place):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING": STARLING}
    for words, text in (["-"], HEAD + "train()\n"), (["-c", HEAD + "train()\n"], ""):
        done = subprocess.run([sys.executable, *words], env=variables, cwd=place.folder, input=text, capture_output=True,
                              text=True, timeout=PATIENCE)
        require(done.returncode == 2 and "a job needs a script in a file" in done.stderr, f"{words}: {done.stderr}")
        require("write it to train.py and run `python train.py`" in done.stderr, done.stderr)
    require(os.listdir(place.folder) == ["text.txt"], f"{os.listdir(place.folder)}")
