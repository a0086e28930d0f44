"""A classifier of small pictures as Lightning has it, of which three lines are Starling's:

    pip install torch safetensors lightning build/wheel/starling_elastic-*.whl
    WORKERS=3 python lightning_fit.py --out out

Any worker may be lost at any time: the same model, and the same val_loss. After fit() the module is the trained one, and
out/model.safetensors has its state_dict: starling.load("out", module)."""

import argparse
import os

import lightning
import safetensors.torch
import torch
from starling.lightning import Trainer
from torch.utils.data import DataLoader, TensorDataset

DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mlp", "digits.safetensors")


class Classifier(lightning.LightningModule):
    def __init__(self, pixels, classes, width, lr):
        super().__init__()
        self.lr = lr
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(pixels, width), torch.nn.GELU(), torch.nn.LayerNorm(width), torch.nn.Dropout(0.1),
            torch.nn.Linear(width, classes))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        named = self.layers(x)
        self.log("val_loss", torch.nn.functional.cross_entropy(named, y), prog_bar=True)
        self.log("val_accuracy", (named.argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=DIGITS, help="a safetensors file with x [n, ..] and y [n]")
    parser.add_argument("--out", help="folder of the model (default: a new one)")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=4, help="batches of a step")
    options = parser.parse_args()

    found = safetensors.torch.load_file(options.data)
    x, y = found["x"].float().flatten(1), found["y"].long()
    count = len(x) * 4 // 5  # the rest is held out
    train = DataLoader(TensorDataset(x[:count], y[:count]), batch_size=options.batch, shuffle=True)
    held_out = DataLoader(TensorDataset(x[count:], y[count:]), batch_size=options.batch)

    trainer = Trainer(
        max_epochs=options.epochs,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=1.0,
        default_root_dir=options.out,
        job={"workers": int(os.environ.get("WORKERS", "2"))},
    )
    trainer.fit(Classifier(x.shape[1], int(y.max()) + 1, options.width, options.lr), train, held_out)
    ended = trainer.callback_metrics
    print(f"val_loss {ended['val_loss']:.4f}, val_accuracy {ended['val_accuracy']:.3f}")


if __name__ == "__main__":
    main()
