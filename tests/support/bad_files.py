"""What cannot be deployed, or fails once it runs, by the names of its files."""

from tests.support import guests, programs

HOST = """
from executor import Ok, host_function

def bound(answer):
    @host_function("demo:relay/peer", "call: func(text: string) -> result<string, string>")
    def call(call, text):
        return answer()
    return call

def fail():
    raise ValueError("no such account")

raises = bound(fail)
wrong = bound(lambda: 7)
surrogate = bound(lambda: Ok("\\ud800"))

class Own(BaseException):
    pass

def leave(error):
    raise error

own = bound(lambda: leave(Own("gone")))
stops = bound(lambda: leave(SystemExit(3)))
interrupts = bound(lambda: leave(KeyboardInterrupt()))
"""

EXITS = b"""
(component
  (import "wasi:cli/exit@0.2.0" (instance $exit (export "exit-with-code"
    (func (param "status-code" u8)))))
  (core func $exit (canon lower (func $exit "exit-with-code")))
  (core module $M (import "h" "exit" (func $exit (param i32)))
    (func (export "leave") (call $exit (i32.const 3))))
  (core instance $m (instantiate $M (with "h" (instance (export "exit" (func $exit))))))
  (func (export "leave") (canon lift (core func $m "leave"))))
"""

TWO = b"""
(component
  (core module $M (func (export "f")))
  (core instance $m (instantiate $M))
  (func $f (canon lift (core func $m "f")))
  (instance $i (export "run-it" (func $f)))
  (export "x:y/a" (instance $i)) (export "x:y/b" (instance $i)))
"""

ILL_FORMED = rb"""
(component
  (import "demo:relay/peer" (instance $peer
    (export "call" (func (param "text" string) (result (result string (error string)))))))
  (core module $Memory
    (memory (export "memory") 1)
    (data (i32.const 8) "\ff\fe text")
    (data (i32.const 64) "\08\00\00\00\02\00\00\00")
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "cabi_realloc" (core func $realloc))
  (core func $call (canon lower (func $peer "call") (memory $mem) (realloc $realloc)))
  (core module $M (import "h" "call" (func $call (param i32 i32 i32)))
    (func (export "send") (call $call (i32.const 8) (i32.const 2) (i32.const 512)))
    (func (export "text") (result i32) (i32.const 64))
    (func (export "char") (result i32) (i32.const 0xd800)))
  (core instance $m (instantiate $M (with "h" (instance (export "call" (func $call))))))
  (func (export "send") (canon lift (core func $m "send")))
  (func (export "text") (result string)
    (canon lift (core func $m "text") (memory $mem) (realloc $realloc)))
  (func (export "char") (result char) (canon lift (core func $m "char"))))
"""

SERVER = b"""
(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $response))
  (core module $M (func (export "handle") (param i32 i32)))
  (core instance $m (instantiate $M))
  (func $handle (param "request" (own $request)) (param "response-out" (own $response))
    (canon lift (core func $m "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))
"""

FILES = {
    "server.wat": SERVER,
    "ill.wat": ILL_FORMED,
    "adder.wat": guests.ADDER,
    "relay.wat": programs.RELAY,
    "exits.wat": EXITS,
    "two.wat": TWO,
    "tables.wat": b"(component (core module $M (table 3 funcref)))",
    "empty.wasm": b"",
    "script.wasm": b"#!/bin/sh\n",
    "core.wasm": b"\0asm\1\0\0\0",
    "cut.wasm": b"\0asm\x0d\0\1\0\1\x7f",
    "torn.wat": b"(component (core",
    "preview3.wat": b'(component (import "a:b/c" (instance (export "f" (func async)))))',
    "missing.wat": b"""
        (component
          (import "a:b/c@1.0.0" (instance (export "f" (func (result u32)))))
          (import "wasi:clocks/wall-clock@0.3.0" (instance (export "now" (func)))))""",
    "differs.wat": b"""
        (component (import "wasi:clocks/monotonic-clock@0.2.0"
          (instance (export "now" (func (result string))))))""",
    "hosts.py": HOST.encode(),
    "unsigned.py": b"from executor import host_function\nhost_function('a:b/c', '')",
}
