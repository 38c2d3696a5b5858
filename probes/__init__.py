"""What measures: probes on the user's own hardware and load tests of running endpoints.

    pages, CLI ──► jobs ──► runner (child process, no torch) ──► worker (grandchild per probe group: torch, JSON lines)
                    │           │ lock per device, NVML state, time limits
                    ▼           ▼
                  progress    store (atomic results, history) ──► measured (a run as DeviceProfile), sanity (in words)

Torch is imported by worker and by what only worker imports (harness, torch_device, matmul and the probes). Adding a
probe means adding a file with `cases(bench)` and a line in `registry.PROBES`.
"""
