"""A backend for LocalAI over gRPC, in front of the daemon: `backend.Backend`, as `core/localai` has its messages.

Only the verb `localai-backend` imports it; `grpcio` and `protobuf` are the extra `[localai]`.
"""
