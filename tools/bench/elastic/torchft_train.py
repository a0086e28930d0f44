"""The model of model.py under torchft, as its train_ddp.py does it: one process for each replica group,

    TORCHFT_LIGHTHOUSE=http://HOST:PORT REPLICA_GROUP_ID=0 torchrun --standalone --nproc_per_node=1 torchft_train.py

As there, the position in the data is not saved: that would be the user's affair, replica by replica."""

import os
from datetime import timedelta

import torch
from torch.utils.data import DataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from model import BATCH, STEPS, WORKERS, build, finished, loss, passed, ready

torch.manual_seed(1)
REPLICA = int(os.environ["REPLICA_GROUP_ID"])
net, data = build()
sampler = DistributedSampler(data, replica_rank=REPLICA, num_replica_groups=WORKERS, group_rank=0, num_replicas=1)
loader = DataLoader(data, BATCH, sampler=sampler)


def load_state_dict(state):
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])


def state_dict():
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict()}


manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(milliseconds=int(os.environ.get("GLOO_TIMEOUT_MS", "5000")))),
    min_replica_size=1,
    load_state_dict=load_state_dict,
    state_dict=state_dict,
    replica_id=f"torchft_train_{REPLICA}",
    timeout=timedelta(seconds=30),
    heartbeat_interval=timedelta(milliseconds=int(os.environ.get("HEARTBEAT_MS", "100"))),
)
net = DistributedDataParallel(manager, net)
optimizer = Optimizer(manager, torch.optim.Adam(net.parameters(), 1e-3))
before = manager.current_step()  # noted
ready()  # noted
while manager.current_step() < STEPS:
    for batch in loader:
        optimizer.zero_grad()  # begins a quorum
        loss(net, batch).backward()
        optimizer.step()  # unless something failed
        if manager.current_step() != before:  # noted
            before = manager.current_step()  # noted
            passed(before, manager.num_participants(), manager.is_participating())  # noted
        if manager.current_step() >= STEPS:
            break
finished(net)  # noted
