"""Every error this program raises on purpose.

SupervisorError                     internal_error
├─ ConfigError                      config_invalid
├─ UsageError                       usage
├─ PackageOverwritten               package_overwritten
├─ ExtraMissing                     extra_missing
├─ SystemRefused                    system_refused
│  └─ FolderRefused                 folder_refused
├─ ProfileInvalid                   profile_invalid
├─ DaemonError                      daemon_error
│  ├─ DaemonUnreachable             daemon_unreachable
│  ├─ DaemonUnproven                daemon_unproven
│  ├─ DaemonVersionMismatch         version_mismatch
│  ├─ DaemonAlreadyRunning          daemon_already_running
│  ├─ AddressInUse                  address_in_use
│  ├─ PassedSocketUnusable          passed_socket_unusable
│  ├─ InsecureBind                  insecure_bind
│  ├─ TakeoverFailed                takeover_failed
│  ├─ TakeoverUnsupported           takeover_unsupported
│  ├─ Overloaded                    overloaded
│  │  ├─ TakingOver                 taking_over
│  │  ├─ QueueFull                  queue_full
│  │  ├─ BodiesFull                 bodies_full
│  │  ├─ TooManyConnections         too_many_connections
│  │  ├─ TooManyReaders             too_many_readers
│  │  ├─ TooManyDownloads           too_many_downloads
│  │  ├─ NotReady                   not_ready
│  │  ├─ ClusterUnavailable         cluster_unavailable
│  │  └─ LendingFull                lending_full
│  ├─ RequestCancelled              request_cancelled
│  ├─ ShuttingDown                  shutting_down
│  ├─ StoreUnusable                 store_unusable
│  │  └─ StoreTooNew                store_too_new
│  ├─ KeysUnusable                  keys_unusable
│  ├─ TracingUnavailable            tracing_unavailable
│  ├─ RemoteError
│  ├─ WorkerError                   worker_error
│  │  ├─ WorkersOff                 workers_off
│  │  ├─ WorkersUnavailable         workers_unavailable
│  │  ├─ WorkerNotFound             worker_not_found
│  │  ├─ WorkerRefused              worker_refused
│  │  ├─ WorkerNotJoined            worker_not_joined
│  │  └─ WorkerUnusable             worker_unusable
│  └─ ClusterError                  cluster_error
│     ├─ ClusterOff                 cluster_off
│     ├─ ClusterJoined              cluster_joined
│     ├─ ClusterRefused             cluster_refused
│     ├─ NodeNotFound               node_not_found
│     ├─ NodeLost                   node_lost
│     ├─ ModelMoved                 model_moved
│     ├─ NodeUnknown                node_unknown
│     ├─ FileNotHere                file_not_here
│     ├─ RangeNotSatisfiable        range_not_satisfiable
│     ├─ VersionChanged             cluster_config_changed
│     ├─ VersionNotFound            cluster_config_not_found
│     ├─ NatsServerMissing          nats_server_missing
│     └─ NatsServerFailed           nats_server_failed
├─ EngineError                      engine_error
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
│  ├─ NotSupportedByEngine          not_supported_by_engine
│  └─ OptionNotSupported            option_not_supported
├─ HubError                         hub_error
│  ├─ RepositoryNotFound            repository_not_found
│  ├─ HubTokenNeeded                hub_token_needed
│  ├─ HubGated                      hub_gated
│  ├─ HubBusy                       hub_busy
│  ├─ HubUnreachable                hub_unreachable
│  ├─ DownloadFailed                download_failed
│  ├─ DiskFull                      disk_full
│  └─ VerificationFailed            verification_failed
├─ ModelError                       model_error
│  ├─ ModelNotFound                 model_not_found
│  ├─ ModelIdTaken                  model_id_taken
│  ├─ ModelFileError                model_file_invalid
│  │  ├─ GgufError                  gguf_invalid
│  │  ├─ SafetensorsError           safetensors_invalid
│  │  ├─ ModelConfigError           model_config_invalid
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
│  ├─ MemoryUnknown                 memory_unknown
│  └─ ModelLoadFailed               model_load_failed
│     ├─ ModelNotLoaded             model_not_loaded
│     ├─ CrashLoop                  crash_loop
│     └─ LoadCancelled              load_cancelled
└─ RequestError                     request_error
   ├─ InvalidRequest                invalid_request
   │  ├─ PayloadTooLarge            payload_too_large
   │  │  └─ MediaTooLarge           media_too_large
   │  └─ MediaUrlRefused            media_url_refused
   ├─ EncodingNotSupported          encoding_not_supported
   ├─ NotSupportedHere              not_supported
   ├─ HeadersTooLarge               headers_too_large
   ├─ RequestTimeout                request_timeout
   ├─ DeadlinePassed                deadline_passed
   ├─ Unauthorized                  unauthorized
   │  └─ KeyExpired                 key_expired
   ├─ Forbidden                     forbidden
   ├─ RateLimited                   rate_limited
   ├─ BudgetSpent                   budget_spent
   ├─ KeyNotFound                   key_not_found
   ├─ KeyRefused                    key_refused
   ├─ HostNotAllowed                host_not_allowed
   ├─ OriginNotAllowed              origin_not_allowed
   ├─ RequestNotFound               request_not_found
   ├─ RecordNotFound                record_not_found
   ├─ CaptureIncomplete             capture_incomplete
   ├─ RouteNotFound                 route_not_found
   ├─ MethodNotAllowed              method_not_allowed
   ├─ TimeLimit                     time_limit
   ├─ MediaNotFetched               media_not_fetched
   └─ TlsRequired                   tls_required

The tree is drawn by `python -m tests.support.pages`. A class says its `code`, which is a promise to scripts, and
the `status` of an HTTP answer; messages say what is wrong and what to do. Exit codes live in `cli/exits.py`.
"""

from supervisor.errors.base import *  # noqa: F403 - every class is public
from supervisor.errors.cluster import *  # noqa: F403 - likewise
from supervisor.errors.daemon import *  # noqa: F403 - likewise
from supervisor.errors.engine import *  # noqa: F403 - likewise
from supervisor.errors.hub import *  # noqa: F403 - likewise
from supervisor.errors.model import *  # noqa: F403 - likewise
from supervisor.errors.request import *  # noqa: F403 - likewise
