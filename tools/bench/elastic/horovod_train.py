"""The model of model.py under Horovod elastic, as its example of PyTorch and MNIST does it, with the sampler that
Horovod has for this:

    horovodrun -np 4 --min-np 2 --max-np 4 --host-discovery-script hosts.sh python horovod_train.py"""

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader

from model import BATCH, STEPS, build, finished, loss, passed

hvd.init()
torch.manual_seed(1)
torch.set_num_threads(1)
net, data = build()
sampler = hvd.elastic.ElasticSampler(data)
loader = DataLoader(data, BATCH, sampler=sampler)
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        for batch in loader:
            state.optimizer.zero_grad()
            loss(state.model, batch).backward()
            state.optimizer.step()
            state.step += 1
            state.sampler.record_batch(state.step, BATCH)
            passed(state.step, hvd.size())  # noted
            state.commit()
            if state.step >= STEPS:
                break


train(hvd.elastic.TorchState(net, optimizer, sampler=sampler, step=0))
finished(net)  # noted
