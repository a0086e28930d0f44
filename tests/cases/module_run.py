"""A script that is started with -m, or by a symbolic link, finds its modules in the workers as it does here."""
import os

from harness import require
from scripts import HEAD, result, written


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
