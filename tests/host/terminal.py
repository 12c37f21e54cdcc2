#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""terminal.py COLUMNS ANSWER COMMAND...: runs COMMAND on a terminal of its own, prints what it said, exits as it did.

When the command asks ([y/N]), ANSWER is typed: a text and Return, `^C`, `^D`, or `!SCRIPT yes`, which
first runs SCRIPT.  A `^C` that nothing follows is typed again, as one would: one that comes between the question and
the read behind it, sooner than anybody can type, interrupts nothing.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios

columns, answer, *command = sys.argv[1:]
child, fd = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(columns), 0, 0))
    # As after a login: whoever runs the tests in the background has Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(command[0], command)
said = b""
asked = False
typed = b""
while True:
    if typed == b"\x03" and not select.select([fd], [], [], 5)[0]:
        os.write(fd, typed)
        continue
    try:
        more = os.read(fd, 65536)
    except OSError:
        # The last one on the terminal has left.
        break
    if not more:
        break
    said += more
    if not asked and b"[y/N]" in said:
        asked = True
        if answer.startswith("!"):
            script, _, answer = answer[1:].rpartition(" ")
            subprocess.run(script, shell=True, check=True)
        typed = {"^C": b"\x03", "^D": b"\x04"}.get(answer, answer.encode() + b"\n")
        os.write(fd, typed)
sys.stdout.write(said.decode(errors="replace").replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
