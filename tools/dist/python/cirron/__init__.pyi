"""Types of the module cirron, for editors and type checkers: all that it offers is here, all that is here it has.

Functions that record (scope, mark, epochs, batches, and what wrap and watch do later) raise nothing of their own but TypeError and
ValueError for wrong arguments, never wait, and print nothing. Any thread may call them, and any asyncio task.
"""
import os
import pathlib
import types
from typing import Any, Callable, Dict, Generic, Iterable, List, Literal, Optional, Tuple, Type, TypedDict, TypeVar, Union, final, overload

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_Path = Union[str, "os.PathLike[str]"]
_Snapshots = Literal["stats", "sampled", "full", "off"]
_Sink = Literal["spool", "stdout", "log", "none"]
_Output = Union[None, _Sink, List[_Sink], Tuple[_Sink, ...]]

__version__: str

class _Mark(TypedDict):
    name: str
    value: Union[bool, int, float, str]
    kind: Literal["point", "summary"]

class _Span(TypedDict):
    id: str
    parent_id: Optional[str]
    name: str
    index: Optional[int]
    start_ns: int  # since 1970, UTC
    end_ns: Optional[int]  # None: still open
    wall_us: Optional[int]
    cpu_ns: Optional[int]
    gpu_ns: Optional[int]
    memory_peak_bytes: Optional[int]
    attrs: Dict[str, Any]
    marks: List[_Mark]
    children: List[_Span]
    pid: int
    thread_id: int  # the system's
    rank: int  # 0 outside of a distributed job

class _Trace(TypedDict):
    roots: List[_Span]
    span_count: int

class _Framework(TypedDict):
    version: Optional[str]  # None: it does not say
    tested: str  # "4.41 to 5.24"
    in_range: bool
    observed: int  # functions
    missing: List[str]  # "module:function" that is not there, or is another one than expected

class _Health(TypedDict):
    enabled: bool
    transport: Optional[str]
    flush_mode: str
    spool_dir: Optional[str]
    spool_bytes: int
    spool_drop_count: int
    spool_error_count: int
    spool_lost_bytes: int
    flush_latency_ns: int
    snapshot_count: int
    snapshot_tensor_count: int
    snapshot_torn_count: int
    snapshot_skip_count: int
    snapshot_own_count: int
    snapshot_wait_ns: int
    snapshot_list_ns: int
    snapshot_blob_count: int
    snapshot_blob_error_count: int
    snapshot_blob_drop_count: int
    flush_restart_count: int
    frameworks_installed: List[str]
    installed_hooks: List[str]
    frameworks: Dict[str, _Framework]  # those that were imported, by package
    platform_context: Dict[str, Any]
    watched: List[str]
    scope_drop_count: int
    mark_drop_count: int
    mark_refused_count: int
    name_drop_count: int
    ring_drop_count: int
    attr_coerced_count: int  # attributes that are kept as their str(), or shortened
    attr_drop_count: int  # attributes for which there was no room
    trace_span_count: int
    trace_bytes: int
    trace_drop_count: int
    trace_mark_drop_count: int
    detail_shed_count: int
    scope_depth: int
    overhead_ns: Optional[int]
    overhead_ratio: Optional[float]

class CirronError(Exception): ...
class CirronDependencyError(CirronError, ImportError): ...
class CirronYamlError(Exception): ...

@final
class Scope:
    @property
    def name(self) -> str: ...
    @property
    def index(self) -> Optional[int]: ...
    @property
    def id(self) -> Optional[str]: ...
    @property
    def parent_id(self) -> Optional[str]: ...
    @property
    def attrs(self) -> Dict[str, Any]: ...
    def __enter__(self) -> Scope: ...
    def __exit__(self, type: Optional[Type[BaseException]], value: Optional[BaseException], traceback: Optional[types.TracebackType], /) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...

@final
class LoopIterator(Generic[_T]):
    def __iter__(self) -> LoopIterator[_T]: ...
    def __next__(self) -> _T: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def close(self) -> None: ...

@final
class Profiler:
    @property
    def enabled(self) -> bool: ...
    @property
    def settings(self) -> Dict[str, Any]: ...
    @property
    def cirron(self) -> Cirron: ...
    @property
    def installed_hooks(self) -> List[str]: ...
    @property
    def hook_handles(self) -> Dict[str, Any]: ...
    @property
    def platform_context(self) -> Dict[str, Any]: ...
    def flush(self) -> None: ...
    def health(self) -> _Health: ...
    def shutdown(self) -> None: ...
    @overload
    def trace(self, format: Literal["tree"] = "tree", name: Optional[str] = None, last: Optional[int] = None) -> None: ...
    @overload
    def trace(self, format: Literal["dict"], name: Optional[str] = None, last: Optional[int] = None) -> _Trace: ...
    @overload
    def trace(self, format: Literal["json"], name: Optional[str] = None, last: Optional[int] = None) -> str: ...
    @overload
    def trace(self, format: Literal["df"], name: Optional[str] = None, last: Optional[int] = None) -> Any: ...

@final
class Cirron:
    def __new__(
        cls,
        *,
        api_key: Optional[str] = None,
        api_endpoint: Optional[str] = None,
        workspace_id: Optional[str] = None,
        output_dir: Optional[_Path] = None,
        snapshots: Optional[_Snapshots] = None,
        sample_rate: Optional[float] = None,
        flush_interval: Optional[float] = None,
        spool_max_bytes: Optional[int] = None,
        ingest_path: Optional[str] = None,
        load_warn_bytes: Optional[int] = None,
        load_max_bytes: Optional[int] = None,
        output: _Output = None,
        trace_buffer_max_spans: Optional[int] = None,
    ) -> Cirron: ...
    @property
    def api_key(self) -> Optional[str]: ...
    @property
    def api_endpoint(self) -> Optional[str]: ...
    @property
    def workspace_id(self) -> Optional[str]: ...
    @property
    def output_dir(self) -> str: ...
    @property
    def snapshots(self) -> _Snapshots: ...
    @property
    def sample_rate(self) -> float: ...
    @property
    def flush_interval(self) -> float: ...
    @property
    def spool_max_bytes(self) -> int: ...
    @property
    def ingest_path(self) -> Optional[str]: ...
    @property
    def load_warn_bytes(self) -> int: ...
    @property
    def load_max_bytes(self) -> int: ...
    @property
    def output(self) -> List[_Sink]: ...
    @property
    def trace_buffer_max_spans(self) -> int: ...
    def profile(
        self,
        config: Optional[Dict[str, Any]] = None,
        *,
        frameworks: Union[None, List[str], Tuple[str, ...]] = None,
        snapshots: Optional[_Snapshots] = None,
        sample_rate: Optional[float] = None,
        flush_interval: Optional[float] = None,
        enabled: bool = True,
        path: Optional[_Path] = None,
        output: _Output = None,
    ) -> Profiler: ...
    @staticmethod
    def scope(name: str, index: Optional[int] = None, **attrs: Any) -> Scope: ...
    @staticmethod
    def mark(name: str, value: Any, *, kind: Literal["point", "summary"] = "point", **attrs: Any) -> None: ...
    @staticmethod
    def epochs(iterable: Iterable[_T], /) -> LoopIterator[_T]: ...
    @staticmethod
    def batches(iterable: Iterable[_T], /) -> LoopIterator[_T]: ...
    @staticmethod
    def wrap(estimator: _T) -> _T: ...
    @overload
    @staticmethod
    def trace(format: Literal["tree"] = "tree", name: Optional[str] = None, last: Optional[int] = None) -> None: ...
    @overload
    @staticmethod
    def trace(format: Literal["dict"], name: Optional[str] = None, last: Optional[int] = None) -> _Trace: ...
    @overload
    @staticmethod
    def trace(format: Literal["json"], name: Optional[str] = None, last: Optional[int] = None) -> str: ...
    @overload
    @staticmethod
    def trace(format: Literal["df"], name: Optional[str] = None, last: Optional[int] = None) -> Any: ...

class WrappedEstimator:
    @property
    def __wrapped__(self) -> Any: ...
    def __getattr__(self, name: str, /) -> Any: ...  # the estimator's
    def __copy__(self) -> Any: ...
    def __deepcopy__(self, memo: Dict[int, Any], /) -> Any: ...

class CirronYaml(types.SimpleNamespace):
    name: str
    framework: str
    type: str
    version: str
    description: Optional[str]
    env: Dict[str, str]
    secrets: List[Any]
    data: Dict[str, str]
    profiling: Optional[ProfilingConfig]
    serving_config: Optional[ServingConfig]

class ProfilingConfig(types.SimpleNamespace):
    snapshots: Optional[_Snapshots]
    sample_rate: Optional[float]
    flush_interval: Optional[float]
    frameworks: Optional[List[str]]

class ServingConfig(types.SimpleNamespace):
    runtime: Optional[str]
    class_labels: Optional[List[Any]]
    feature_order: Optional[List[Any]]
    input_schema: Any
    output_schema: Any

def scope(name: str, index: Optional[int] = None, **attrs: Any) -> Scope: ...
def mark(name: str, value: Any, *, kind: Literal["point", "summary"] = "point", **attrs: Any) -> None: ...
def epochs(iterable: Iterable[_T], /) -> LoopIterator[_T]: ...
def batches(iterable: Iterable[_T], /) -> LoopIterator[_T]: ...
def watch(model: Any, name: Optional[str] = None) -> None: ...
def wrap(estimator: _T) -> _T: ...
def profile(
    config: Optional[Dict[str, Any]] = None,
    frameworks: Union[None, List[str], Tuple[str, ...]] = None,
    snapshots: Optional[_Snapshots] = None,
    sample_rate: Optional[float] = None,
    flush_interval: Optional[float] = None,
    enabled: bool = True,
    path: Optional[_Path] = None,
    output: _Output = None,
) -> Profiler: ...
@overload
def trace(format: Literal["tree"] = "tree", name: Optional[str] = None, last: Optional[int] = None) -> None: ...
@overload
def trace(format: Literal["dict"], name: Optional[str] = None, last: Optional[int] = None) -> _Trace: ...
@overload
def trace(format: Literal["json"], name: Optional[str] = None, last: Optional[int] = None) -> str: ...
@overload
def trace(format: Literal["df"], name: Optional[str] = None, last: Optional[int] = None) -> Any: ...
def find_cirron_yaml(start: Optional[_Path] = None) -> Optional[pathlib.Path]: ...
def load_cirron_yaml(path: Optional[_Path] = None) -> Optional[CirronYaml]: ...
def get_default() -> Cirron: ...
def flush() -> None: ...
def shutdown() -> None: ...
def health() -> _Health: ...
