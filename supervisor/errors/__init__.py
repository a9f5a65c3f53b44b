"""Every error this program raises on purpose.

SupervisorError                     internal_error
├─ ConfigError                      config_invalid
├─ UsageError                       usage
├─ PackageOverwritten               package_overwritten
├─ SystemRefused                    system_refused
│  └─ FolderRefused                 folder_refused
├─ ProfileInvalid                   profile_invalid
├─ ModelError
│  ├─ ModelNotFound                 model_not_found
│  ├─ ModelIdTaken                  model_id_taken
│  ├─ ModelFileError                model_file_invalid
│  │  ├─ GgufError                  gguf_invalid
│  │  ├─ ShardMissing               shard_missing
│  │  ├─ ProjectorAlone             projector
│  │  ├─ VocabularyOnly             vocabulary_only
│  │  ├─ DraftOnly                  draft_only
│  │  └─ ContextUnknown             no_context
│  ├─ VariantNotFound               variant_not_found
│  ├─ VariantAmbiguous              variant_ambiguous
│  ├─ ModelInUse                    model_in_use
│  ├─ EstimateRefused               estimate_refused
│  ├─ ModelDoesNotFit               does_not_fit
│  └─ ModelLoadFailed               model_load_failed
│     ├─ ModelNotLoaded             model_not_loaded
│     ├─ CrashLoop                  crash_loop
│     └─ LoadCancelled              load_cancelled
├─ HubError                         hub_error
│  ├─ RepositoryNotFound            repository_not_found
│  ├─ HubTokenNeeded                hub_token_needed
│  ├─ HubGated                      hub_gated
│  ├─ HubBusy                       hub_busy
│  ├─ HubUnreachable                hub_unreachable
│  ├─ DownloadFailed                download_failed
│  ├─ DiskFull                      disk_full
│  └─ VerificationFailed            verification_failed
├─ EngineError
│  ├─ EngineNotFound                engine_not_found
│  ├─ EngineUnusable                engine_unusable
│  ├─ EngineInstallFailed           engine_install_failed
│  │  ├─ BuildToolMissing           build_tool_missing
│  │  ├─ BuildFailed                build_failed
│  │  └─ BuildLocked                build_locked
│  ├─ EngineStartFailed             engine_start_failed
│  │  └─ EngineStalled              engine_stalled
│  ├─ EngineLost                    engine_lost
│  │  └─ EngineHung                 engine_hung
│  ├─ EngineStreamInvalid           engine_stream_invalid
│  └─ OptionNotSupported            option_not_supported
├─ RequestError
│  ├─ InvalidRequest                invalid_request
│  │  └─ PayloadTooLarge            payload_too_large
│  ├─ HeadersTooLarge               headers_too_large
│  ├─ RequestTimeout                request_timeout
│  ├─ Unauthorized                  unauthorized
│  ├─ HostNotAllowed                host_not_allowed
│  ├─ OriginNotAllowed              origin_not_allowed
│  ├─ RequestNotFound               request_not_found
│  └─ RouteNotFound                 route_not_found
└─ DaemonError
   ├─ DaemonUnreachable             daemon_unreachable
   ├─ DaemonUnproven                daemon_unproven
   ├─ DaemonVersionMismatch         version_mismatch
   ├─ DaemonAlreadyRunning          daemon_already_running
   ├─ AddressInUse                  address_in_use
   ├─ InsecureBind                  insecure_bind
   ├─ Overloaded                    overloaded
   │  ├─ QueueFull                  queue_full
   │  ├─ BodiesFull                 bodies_full
   │  ├─ TooManyConnections         too_many_connections
   │  ├─ TooManyReaders             too_many_readers
   │  └─ TooManyDownloads           too_many_downloads
   ├─ RequestCancelled              request_cancelled
   ├─ ShuttingDown                  shutting_down
   ├─ StoreUnusable                 store_unusable
   │  └─ StoreTooNew                store_too_new
   └─ RemoteError                   (the code the daemon gave)

`code` is a promise to scripts; a message says what is wrong and what to do. HTTP statuses live in
`api/errors.py`, exit codes in `cli/exits.py`: an error does not know who asks.
"""

from __future__ import annotations

from supervisor.errors.base import (
    ConfigError,
    FolderRefused,
    PackageOverwritten,
    ProfileInvalid,
    SupervisorError,
    SystemRefused,
    UsageError,
)
from supervisor.errors.daemon import (
    AddressInUse,
    BodiesFull,
    DaemonAlreadyRunning,
    DaemonError,
    DaemonUnproven,
    DaemonUnreachable,
    DaemonVersionMismatch,
    InsecureBind,
    Overloaded,
    QueueFull,
    RemoteError,
    RequestCancelled,
    ShuttingDown,
    StoreTooNew,
    StoreUnusable,
    TooManyConnections,
    TooManyDownloads,
    TooManyReaders,
)
from supervisor.errors.engine import (
    BuildFailed,
    BuildLocked,
    BuildToolMissing,
    EngineError,
    EngineHung,
    EngineInstallFailed,
    EngineLost,
    EngineNotFound,
    EngineStalled,
    EngineStartFailed,
    EngineStreamInvalid,
    EngineUnusable,
    OptionNotSupported,
)
from supervisor.errors.hub import (
    DiskFull,
    DownloadFailed,
    HubBusy,
    HubError,
    HubGated,
    HubTokenNeeded,
    HubUnreachable,
    RepositoryNotFound,
    VerificationFailed,
)
from supervisor.errors.model import (
    ContextUnknown,
    CrashLoop,
    DraftOnly,
    EstimateRefused,
    GgufError,
    LoadCancelled,
    ModelDoesNotFit,
    ModelError,
    ModelFileError,
    ModelIdTaken,
    ModelInUse,
    ModelLoadFailed,
    ModelNotFound,
    ModelNotLoaded,
    ProjectorAlone,
    ShardMissing,
    VariantAmbiguous,
    VariantNotFound,
    VocabularyOnly,
    file_refused,
)
from supervisor.errors.request import (
    HeadersTooLarge,
    HostNotAllowed,
    InvalidRequest,
    OriginNotAllowed,
    PayloadTooLarge,
    RequestError,
    RequestNotFound,
    RequestTimeout,
    RouteNotFound,
    Unauthorized,
)

__all__ = [
    "AddressInUse",
    "BodiesFull",
    "BuildFailed",
    "BuildLocked",
    "BuildToolMissing",
    "ConfigError",
    "ContextUnknown",
    "CrashLoop",
    "DaemonAlreadyRunning",
    "DaemonError",
    "DaemonUnproven",
    "DaemonUnreachable",
    "DaemonVersionMismatch",
    "DiskFull",
    "DownloadFailed",
    "DraftOnly",
    "EngineError",
    "EngineHung",
    "EngineInstallFailed",
    "EngineLost",
    "EngineNotFound",
    "EngineStalled",
    "EngineStartFailed",
    "EngineStreamInvalid",
    "EngineUnusable",
    "EstimateRefused",
    "FolderRefused",
    "GgufError",
    "HeadersTooLarge",
    "HostNotAllowed",
    "HubBusy",
    "HubError",
    "HubGated",
    "HubTokenNeeded",
    "HubUnreachable",
    "InsecureBind",
    "InvalidRequest",
    "LoadCancelled",
    "ModelDoesNotFit",
    "ModelError",
    "ModelFileError",
    "ModelIdTaken",
    "ModelInUse",
    "ModelLoadFailed",
    "ModelNotFound",
    "ModelNotLoaded",
    "OptionNotSupported",
    "OriginNotAllowed",
    "Overloaded",
    "PackageOverwritten",
    "PayloadTooLarge",
    "ProfileInvalid",
    "ProjectorAlone",
    "QueueFull",
    "RemoteError",
    "RepositoryNotFound",
    "RequestCancelled",
    "RequestError",
    "RequestNotFound",
    "RequestTimeout",
    "RouteNotFound",
    "ShardMissing",
    "ShuttingDown",
    "StoreTooNew",
    "StoreUnusable",
    "SupervisorError",
    "SystemRefused",
    "TooManyConnections",
    "TooManyDownloads",
    "TooManyReaders",
    "Unauthorized",
    "UsageError",
    "VariantAmbiguous",
    "VariantNotFound",
    "VerificationFailed",
    "VocabularyOnly",
    "file_refused",
]
