"""Programs that try to get out, to last, or to take everything. Each must end as a plain result."""

PROGRAMS = {
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "thread bomb": "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()",
    "memory bomb": "data = []\nwhile True: data.append(bytearray(10**7))",
    "memory bomb in children": (
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        data = bytearray(10**8)\n"
        "        for i in range(0, 10**8, 4096): data[i] = 1\n"
        "        time.sleep(99)\n"
        "time.sleep(99)"
    ),
    "loop deaf to signals": (
        "import signal\n"
        "for n in range(1, 65):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: pass"
    ),
    "daemon": (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for fd in range(256):\n"
        "            try: os.close(fd)\n"
        "            except OSError: pass\n"
        "        time.sleep(99)\n"
        "    os._exit(0)"
    ),
    "grandchild keeps the pipe": "import os, time\nif os.fork() == 0:\n    time.sleep(99)\nprint('parent leaves')",
    "zombies": "import os\nfor _ in range(15):\n    if os.fork() == 0: os._exit(0)",
    "output flood": "import os\nwhile True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)",
    "disk filler": (
        "n = 0\nwhile True:\n    with open(f'f{n}', 'wb') as stream: stream.write(b'x' * 10**6)\n    n += 1"
    ),
    "many files": "n = 0\nwhile True:\n    open(f'f{n}', 'w').close()\n    n += 1",
    "deleter": (
        "import os, shutil\n"
        "for path in ('/', '/usr', '/etc', '/tmp', os.path.expanduser('~')):\n"
        "    shutil.rmtree(path, ignore_errors=True)"
    ),
    "signals to everyone": (
        "import os, signal\n"
        "for pid in (-1, 1, os.getppid()):\n"
        "    try: os.kill(pid, signal.SIGKILL)\n"
        "    except OSError: pass"
    ),
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "closes everything": "import os\nos.closerange(0, 256)\nwhile True: pass",
    "crash": "import ctypes\nctypes.string_at(0)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "exit by signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "nested namespaces": "import ctypes\nassert ctypes.CDLL(None).unshare(0x10000000) == -1",
    "writes to every descriptor": (
        "import os\nfor fd in range(256):\n"
        "    try: os.write(fd, b'{\"status\": 0}\\nready\\n')\n    except OSError: pass"
    ),
}
