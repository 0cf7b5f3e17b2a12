"""Guests as WAT text that observe: what they log, read of their configuration, and trace."""

MEMORY = b"""
  (core module $Memory
    (memory (export "memory") 64)
    (global $end (mut i32) (i32.const 1024))
    (func (export "reset") (global.set $end (i32.const 1024)))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (local $start i32)
      (local.set $start
        (i32.and (i32.add (global.get $end) (i32.const 7)) (i32.const -8)))
      (global.set $end (i32.add (local.get $start) (local.get 3)))
      (if (i32.gt_u (global.get $end) (i32.const 4194304)) (then unreachable))
      (local.get $start)))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "cabi_realloc" (core func $realloc))
"""

TELLER = (
    b"""
(component
  (import "wasi:logging/logging" (instance $logging
    (type $levels (enum "trace" "debug" "info" "warn" "error" "critical"))
    (export "level" (type $level (eq $levels)))
    (export "log" (func
      (param "level" $level) (param "context" string) (param "message" string)))))
  (import "wasi:config/store@0.2.0-draft" (instance $config
    (type $errors (variant (case "upstream" string) (case "io" string)))
    (export "error" (type $error (eq $errors)))
    (export "get" (func (param "key" string)
      (result (result (option string) (error $error)))))))
  (alias export $logging "level" (type $level))
  (alias export $config "error" (type $error))
"""
    + MEMORY
    + b"""
  (core func $log (canon lower (func $logging "log") (memory $mem)))
  (core func $get (canon lower (func $config "get") (memory $mem) (realloc $realloc)))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (import "host" "log" (func $log (param i32 i32 i32 i32 i32)))
    (import "host" "get" (func $get (param i32 i32 i32)))
    (func (export "log") (param i32 i32 i32 i32 i32)
      (call $log (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4))
      (call $reset))
    (func (export "tell") (param $at i32) (param $length i32) (result i32)
      (call $get (local.get $at) (local.get $length) (i32.const 32))
      (i32.const 32))
    (func (export "told") (param i32) (call $reset)))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "host" (instance (export "log" (func $log)) (export "get" (func $get))))))
  (func $say (param "level" $level) (param "subject" string) (param "text" string)
    (canon lift (core func $main "log") (memory $mem) (realloc $realloc)))
  (func $tell (param "key" string) (result (result (option string) (error $error)))
    (canon lift (core func $main "tell") (memory $mem) (realloc $realloc)
      (post-return (core func $main "told"))))
  (instance $api
    (export "level" (type $level)) (export "error" (type $error))
    (export "log" (func $say)) (export "tell" (func $tell)))
  (export "demo:teller/api" (instance $api)))
"""
)
"""`log: func(level: level, subject: string, text: string)` through wasi:logging; `tell: func(key:
string) -> result<option<string>, error>` is what wasi:config has of the key."""

TRACER = (
    b"""
(component
  (import "golem:api/context@1.1.6" (instance $context
    (type $values (variant (case "string" string)))
    (export "attribute-value" (type $value (eq $values)))
    (export "span" (type $span (sub resource)))
    (export "invocation-context" (type $seen (sub resource)))
    (export "start-span" (func (param "name" string) (result (own $span))))
    (export "current-context" (func (result (own $seen))))
    (export "[method]span.set-attribute" (func (param "self" (borrow $span))
      (param "name" string) (param "value" $value)))
    (export "[method]invocation-context.trace-context-headers" (func
      (param "self" (borrow $seen)) (result (list (tuple string string)))))))
  (alias export $context "span" (type $span))
  (alias export $context "invocation-context" (type $seen))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
"""
    + MEMORY
    + b"""
  (core func $start (canon lower (func $context "start-span") (memory $mem)))
  (core func $seen-now (canon lower (func $context "current-context")))
  (core func $set (canon lower (func $context "[method]span.set-attribute") (memory $mem)))
  (core func $headers (canon lower
    (func $context "[method]invocation-context.trace-context-headers")
    (memory $mem) (realloc $realloc)))
  (core func $end (canon resource.drop $span))
  (core func $forget (canon resource.drop $seen))
  (core func $draw (canon lower (func $random "get-random-u64")))
  (core module $Main
    (import "memory" "memory" (memory 1))
    (import "memory" "reset" (func $reset))
    (import "host" "start" (func $start (param i32 i32) (result i32)))
    (import "host" "seen" (func $seen (result i32)))
    (import "host" "set" (func $set (param i32 i32 i32 i32 i32 i32)))
    (import "host" "headers" (func $headers (param i32 i32)))
    (import "host" "end" (func $end (param i32)))
    (import "host" "forget" (func $forget (param i32)))
    (import "host" "draw" (func $draw (result i64)))
    (func (export "trace") (param $at i32) (param $length i32) (result i32)
      (local $span i32) (local $now i32)
      (local.set $span (call $start (local.get $at) (local.get $length)))
      (call $set (local.get $span) (local.get $at) (local.get $length)
        (i32.const 0) (local.get $at) (local.get $length))
      (drop (call $draw))
      (local.set $now (call $seen))
      (call $headers (local.get $now) (i32.const 32))
      (call $forget (local.get $now))
      (call $end (local.get $span))
      (i32.const 32))
    (func (export "traced") (param i32) (call $reset)))
  (core instance $main (instantiate $Main
    (with "memory" (instance $memory))
    (with "host" (instance
      (export "start" (func $start)) (export "seen" (func $seen-now)) (export "set" (func $set))
      (export "headers" (func $headers)) (export "end" (func $end))
      (export "forget" (func $forget)) (export "draw" (func $draw))))))
  (func $trace (param "name" string) (result (list (tuple string string)))
    (canon lift (core func $main "trace") (memory $mem) (realloc $realloc)
      (post-return (core func $main "traced"))))
  (instance $api (export "trace" (func $trace)))
  (export "demo:tracer/api" (instance $api)))
"""
)
"""`trace: func(name: string) -> list<tuple<string, string>>`: the trace headers inside of a span of
that name, with an attribute of that name, which ends when the guest drops it."""
