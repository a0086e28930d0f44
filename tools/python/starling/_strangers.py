"""Another project's package on the index is called `starling` as well, and lies in the same folder: whichever is
installed last wins, file by file, and removing it removes this one's files too. That is said, not lived with."""

from importlib import metadata

_OURS = "Elastic training of PyTorch models"  # as pyproject.toml begins its description


def look() -> None:
    try:
        summary = metadata.metadata("starling")["Summary"] or ""
    except metadata.PackageNotFoundError:
        return
    if not summary.startswith(_OURS):
        raise ImportError(
            "the package `starling` of the index is installed, another project's, in the same folder as this one, which "
            "is `starling-elastic`: pip uninstall starling, then install the wheel of starling-elastic again")


look()
