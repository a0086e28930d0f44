"""The model of model.py under Starling: python starling_train.py"""

import starling

from model import BATCH, OUT, STEPS, WORKERS, build, finished, loss

if __name__ == "__main__":
    starling.train(build, loss, steps=STEPS, micro_batches=WORKERS, batch_size=BATCH, workers=WORKERS, out=OUT,
                   optimizer=starling.Adam(1e-3, floor=1.0, clip=0.0),
                   evaluate=finished)  # noted
