"""Does what is planned hold on this machine's GPUs? `bin/gpu-check`, for machines that no test runs on."""
