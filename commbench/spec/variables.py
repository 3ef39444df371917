"""The table of environment variables that communication reads: which backend reads which.

Sources: NCCL's page on environment variables; torch's page on variables of ProcessGroupNCCL; the
names in libtorch_cpu of torch 2.13, which holds gloo and libgomp's callers. TensorPipe's variables
(`TP_`) are absent: torch.distributed.rpc reads them, and no collective does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from commbench.errors import closest


class VariableFamily(NamedTuple):
    """The variables whose names begin alike."""

    prefix: str
    backends: tuple[str, ...] = ()
    """The backends that read them; empty: any backend may."""
    names: tuple[str, ...] = ()
    """Known names, without the prefix."""
    is_complete: bool = False
    """Whether no other name with this prefix is read."""


VARIABLE_FAMILIES: tuple[VariableFamily, ...] = (
    VariableFamily("TORCH_NCCL_", ("nccl",), (
        "ASYNC_ERROR_HANDLING", "AVOID_RECORD_STREAMS", "BLOCKING_WAIT", "COORD_CHECK_MILSEC",
        "CUDA_EVENT_CACHE", "DEBUG_INFO_TEMP_FILE", "DESYNC_DEBUG", "DUMP_ON_TIMEOUT",
        "ENABLE_MONITORING", "ENABLE_TIMING", "HEARTBEAT_TIMEOUT_SEC", "HIGH_PRIORITY", "NAN_CHECK",
        "NONBLOCKING_TIMEOUT", "PROPAGATE_ERROR", "RANKS_PER_ROOT", "TRACE_BUFFER_SIZE",
        "TRACE_CPP_STACK", "USE_COMM_NONBLOCKING", "USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
        "WAIT_TIMEOUT_DUMP_MILSEC",
    )),
    VariableFamily("NCCL_", ("nccl",), (
        "ALGO", "BUFFSIZE", "CGA_CLUSTER_SIZE", "CHECKS_DISABLE", "COLLNET_ENABLE", "CROSS_NIC",
        "CTA_POLICY", "CUMEM_ENABLE", "DEBUG", "DEBUG_FILE", "DEBUG_SUBSYS", "GRAPH_MIXING_SUPPORT",
        "GRAPH_REGISTER", "IB_ADAPTIVE_ROUTING", "IB_DISABLE", "IB_GID_INDEX", "IB_HCA",
        "IB_PCI_RELAXED_ORDERING", "IB_QPS_PER_CONNECTION", "IB_SL", "IB_SPLIT_DATA_ON_QPS",
        "IB_TC", "IB_TIMEOUT", "IGNORE_CPU_AFFINITY", "LAUNCH_MODE", "LL128_BUFFSIZE",
        "LL_BUFFSIZE", "LOCAL_REGISTER", "MAX_CTAS", "MAX_NCHANNELS", "MAX_P2P_NCHANNELS",
        "MIN_CTAS", "MIN_NCHANNELS", "MIN_P2P_NCHANNELS", "MNNVL_ENABLE", "NCHANNELS_PER_NET_PEER",
        "NET", "NET_GDR_C2C", "NET_GDR_LEVEL", "NET_GDR_READ", "NET_PLUGIN", "NSOCKS_PERTHREAD",
        "NTHREADS", "NVLS_ENABLE", "NVLS_NCHANNELS", "P2P_DISABLE", "P2P_LEVEL",
        "P2P_NET_CHUNKSIZE", "PROTO", "PXN_DISABLE", "SHM_DISABLE", "SOCKET_FAMILY",
        "SOCKET_IFNAME", "SOCKET_NTHREADS", "TOPO_FILE", "TUNER_CONFIG_FILE", "TUNER_PLUGIN",
    )),
    VariableFamily("RCCL_", ("nccl",)),
    VariableFamily("OFI_NCCL_", ("nccl",)),
    VariableFamily("TORCH_GLOO_", ("gloo",), (
        "IBV_INDEX", "IBV_NAME", "IBV_PORT", "LAZY_INIT",
    ), is_complete=True),
    VariableFamily("GLOO_", ("gloo",), (
        "DEVICE_TRANSPORT", "DEVICE_TRANSPORT_TCP_TLS_CA_FILE", "DEVICE_TRANSPORT_TCP_TLS_CA_PATH",
        "DEVICE_TRANSPORT_TCP_TLS_CERT", "DEVICE_TRANSPORT_TCP_TLS_PKEY",
        "DISABLE_CONNECTION_RETRIES", "ENABLE_RANK_AS_SEQUENCE_NUMBER", "ENABLE_STORE_V2_API",
        "LOG_LEVEL", "SOCKET_IFNAME",
    ), is_complete=True),
    VariableFamily("UCC_", ("ucc",)),
    VariableFamily("UCX_", ("ucc", "mpi", "nccl")),
    VariableFamily("OMPI_", ("mpi",)),
    VariableFamily("PMIX_", ("mpi",)),
    VariableFamily("MPICH_", ("mpi",)),
    VariableFamily("I_MPI_", ("mpi", "xccl")),
    VariableFamily("CCL_", ("xccl",)),
    VariableFamily("FI_", ("nccl", "mpi", "xccl")),
    VariableFamily("OMP_", (), ("NUM_THREADS", "PLACES", "PROC_BIND", "WAIT_POLICY")),
    VariableFamily("MKL_", (), ("NUM_THREADS",)),
    VariableFamily("TORCH_DISTRIBUTED_", (), ("DEBUG", "USE_TORCHCOMMS")),
    VariableFamily("TORCH_FR_", (), ("BUFFER_SIZE", "CPP_STACK", "DUMP_TEMP_FILE")),
    VariableFamily("CUDA_", (), ("DEVICE_MAX_CONNECTIONS", "LAUNCH_BLOCKING", "VISIBLE_DEVICES")),
    *(VariableFamily(prefix) for prefix in (
        "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_", "PYTORCH_", "TORCH_CPP_LOG_",
        "TORCH_SHOW_", "TORCH_DIST_INIT_BARRIER", "TORCHELASTIC_", "UV_", "USE_LIBUV", "HIP_",
        "ROCR_", "HSA_", "GPU_", "ZE_", "SYCL_", "MALLOC_", "GLIBC_TUNABLES", "LD_", "PYTHON",
    )),
)  # fmt: skip
"""The first family whose prefix begins a name counts."""


def find_family(name: str) -> VariableFamily | None:
    """The family of a variable; None where nothing is known to read it."""
    return next((f for f in VARIABLE_FAMILIES if name.startswith(f.prefix)), None)


def find_unread(names: Iterable[str], backend: str) -> tuple[str, ...]:
    """The names that only other backends read."""
    families = {name: find_family(name) for name in names}
    return tuple(n for n, f in families.items() if f and f.backends and backend not in f.backends)


def suggest_variable(name: str, backend: str) -> str | None:
    """For a variable that nothing is known to read: the most similar name that the backend reads,
    empty text if no name is similar. None for a variable that something reads.

    Some families are open: NCCL has more variables than its page lists. There an unknown name
    counts as one that nothing reads only where one edit makes it a known name.
    """
    family = find_family(name)
    known = [
        each.prefix + rest
        for each in VARIABLE_FAMILIES
        for rest in each.names
        if each == family or not each.backends or backend in each.backends
    ]
    if name in known:
        return None
    if family and not family.is_complete:
        return next((each for each in known if _is_one_edit(name, each)), None)
    return closest(name, known, similarity=0.75)


def _is_one_edit(name: str, known: str) -> bool:
    """Whether one letter is missing, superfluous or another, or two neighbours are exchanged."""
    start = _common_length(name, known)
    name, known = name[start:][::-1], known[start:][::-1]
    end = _common_length(name, known)
    name, known = name[end:], known[end:]
    return max(len(name), len(known)) == 1 or (len(name) == 2 and name == known[::-1])


def _common_length(a: str, b: str) -> int:
    """How many letters two names have in common at their beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((index for index, (x, y) in pairs if x != y), min(len(a), len(b)))
