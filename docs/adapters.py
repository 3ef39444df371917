# ruff: noqa: ARG002, TID253 - commbench calls with all arguments; it imports this where torch is
"""Calls of libraries for `commbench run --call docs/adapters.py:NAME`, by their public sources as
of November 2026. None of them was run: the GPUs that ran commbench had none of
these libraries."""

import torch
import torch.distributed as dist


class FlashInfer:
    """Of flashinfer/comm/allreduce.py. The copy is part of its time, since input and output are one
    tensor."""

    operation, name, hidden = "all_reduce", "flashinfer", 4096

    def setup(self, group, device, dtype, count):
        from flashinfer.comm import allreduce

        self.library, ranks = allreduce, dist.get_world_size(group)
        if count % self.hidden or ranks > 16:
            raise NotImplementedError(f"multiples of {self.hidden} elements, up to 16 ranks")
        of_ranks = {"world_size": ranks, "rank": dist.get_rank(group), "group": group}
        of_data = {"max_token_num": count // self.hidden, "hidden_dim": self.hidden, "dtype": dtype}
        make = self.library.create_allreduce_fusion_workspace
        self.workspace = make(backend="auto", **of_ranks, **of_data)
        self.pattern = self.library.AllReduceFusionPattern.kAllReduce

    def __call__(self, output, input):
        tokens = input.view(-1, self.hidden)
        reduced = self.library.allreduce_fusion(tokens, self.workspace, self.pattern)
        output.copy_(reduced.view(-1))

    def close(self):
        self.workspace.destroy()


class TorchComms:
    """Of comms/torchcomms/_comms.pyi, under torchrun, whose variables it reads."""

    operation, name, comm = "all_reduce", "torchcomms", None

    def setup(self, group, device, dtype, count):
        import torchcomms

        self.sum = torchcomms.ReduceOp.SUM
        if dist.get_world_size(group) != dist.get_world_size():
            raise NotImplementedError("this adapter makes a communicator of all ranks only")
        if TorchComms.comm is None:  # one for all sizes
            TorchComms.comm = torchcomms.new_comm("ncclx", device, name="commbench")

    def start(self, output, input, async_op=True):
        return self.comm.all_reduce(output, self.sum, async_op=async_op)

    def __call__(self, output, input):
        self.start(output, input, async_op=False)


class DeepEP:
    """Of deep_ep/buffer.py and its test_low_latency.py: tokens to 8 experts and back. With the
    weight 1/8 for each the result is the input, exactly. The time is that of dispatch and combine
    together: compare it with the sum of two all_to_all of 8 times the size."""

    operation, name, factor = "all_to_all", "deep_ep", "1"
    hidden, experts, top = 7168, 256, 8

    def setup(self, group, device, dtype, count):
        import deep_ep

        ranks = dist.get_world_size(group)
        self.tokens, rest = divmod(count * ranks, self.hidden)
        if rest or dtype != torch.bfloat16:
            raise NotImplementedError(f"whole tokens of {self.hidden} bfloat16")
        find_size = deep_ep.Buffer.get_low_latency_rdma_size_hint
        size = find_size(self.tokens, self.hidden, ranks, self.experts)
        options = {"low_latency_mode": True, "num_qps_per_rank": self.experts // ranks}
        self.buffer = deep_ep.Buffer(group, num_rdma_bytes=size, **options)
        scores = torch.rand(self.tokens, self.experts, device=device)
        self.index = scores.topk(self.top).indices
        self.weights = torch.full((self.tokens, self.top), 1 / self.top, device=device)

    def __call__(self, output, input):
        tokens, out = input.view(self.tokens, self.hidden), output.view(self.tokens, -1)
        sent = (tokens, self.index, self.tokens, self.experts)
        received, _, handle, *_ = self.buffer.low_latency_dispatch(*sent, use_fp8=False)
        self.buffer.low_latency_combine(received, self.index, self.weights, handle, out=out)

    def reference(self, inputs, rank):
        return inputs[rank]

    def close(self):
        self.buffer.destroy()
