"""Guests as WAT text that tests of the wasm package share."""


def _lifted(*names):
    """Exports of u32 to u32 of the core instance `$i`."""
    return "\n".join(
        f'(func (export "{name}") (param "n" u32) (result u32)'
        f' (canon lift (core func $i "{name}")))'
        for name in names
    )


BUSY = (
    r"""(component
 (import "t:host/api" (instance $api (export "tick" (func (param "x" u32) (result u32)))))
 (core func $tick (canon lower (func $api "tick")))
 (core module $m (import "h" "tick" (func $tick (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "spin") (param $n i32) (result i32)
    (loop $l (br_if $l (local.get $n))) (i32.const 1))
  (func (export "count") (param $n i32) (result i32) (local $a i32)
    (block $e (loop $l (br_if $e (i32.eqz (local.get $n)))
      (local.set $a (i32.add (i32.mul (local.get $a) (i32.const 31)) (local.get $n)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $l))) (local.get $a))
  (func (export "ticks") (param $n i32) (result i32) (local $s i32)
    (block $e (loop $l (br_if $e (i32.eqz (local.get $n)))
      (local.set $s (i32.add (local.get $s) (call $tick (local.get $n))))
      (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $l))) (local.get $s))
  (func $deep (export "deep") (param $n i32) (result i32)
    (i32.add (i32.const 1) (call $deep (i32.add (local.get $n) (i32.const 1)))))
  (func (export "grow") (param $n i32) (result i32) (memory.grow (local.get $n)))
  (func (export "alloc") (param $n i32) (result i32)
    (loop $l (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
      (br $l)) (i32.const 0))
  (func (export "oob") (param $n i32) (result i32) (i32.load (i32.const 0x7ffffff0)))
  (func (export "div") (param $n i32) (result i32) (i32.div_u (i32.const 1) (i32.const 0))))
 (core instance $i (instantiate $m (with "h" (instance (export "tick" (func $tick))))))
"""
    + _lifted("spin", "count", "ticks", "deep", "grow", "alloc", "oob", "div")
    + ")"
)
"""Functions of u32 to u32; `ticks` sums n answers of the import `t:host/api.{tick}`."""

HANDLES = (
    r"""(component
  (import "t:host/api" (instance $api
    (export "store" (type $store (sub resource)))
    (export "[constructor]store" (func (param "n" u32) (result (own $store))))
    (export "[method]store.get" (func (param "self" (borrow $store)) (result u32)))
    (export "sum" (func (param "all" (list (borrow $store))) (result u32)))
    (export "consume" (func (param "s" (own $store)) (result u32)))))
  (alias export $api "store" (type $store))
  (core module $libc (memory (export "memory") 1))
  (core instance $libc (instantiate $libc))
  (core func $new (canon lower (func $api "[constructor]store")))
  (core func $get (canon lower (func $api "[method]store.get")))
  (core func $sum (canon lower (func $api "sum") (memory (core memory $libc "memory"))))
  (core func $consume (canon lower (func $api "consume")))
  (core func $drop (canon resource.drop $store))
  (core module $m
    (import "l" "memory" (memory 1))
    (import "h" "new" (func $new (param i32) (result i32)))
    (import "h" "get" (func $get (param i32) (result i32)))
    (import "h" "sum" (func $sum (param i32 i32) (result i32)))
    (import "h" "consume" (func $consume (param i32) (result i32)))
    (import "h" "drop" (func $drop (param i32)))
    (func (export "news") (param $n i32) (result i32)
      (block $done (loop $again (br_if $done (i32.eqz (local.get $n)))
        (call $drop (call $new (local.get $n)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $again))) (i32.const 0))
    (func (export "gets") (param $n i32) (result i32)
      (local $h i32) (local $s i32)
      (local.set $h (call $new (i32.const 7)))
      (block $done (loop $again (br_if $done (i32.eqz (local.get $n)))
        (local.set $s (i32.add (local.get $s) (call $get (local.get $h))))
        (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $again)))
      (call $drop (local.get $h)) (local.get $s))
    (func (export "sums") (param $n i32) (result i32)
      (i32.store (i32.const 16) (call $new (local.get $n)))
      (i32.store (i32.const 20) (call $new (i32.const 1)))
      (call $sum (i32.const 16) (i32.const 2)))
    (func (export "consumes") (param $n i32) (result i32)
      (call $consume (call $new (local.get $n))))
    (func (export "leak") (param $n i32) (result i32) (drop (call $new (local.get $n)))
      (i32.const 0))
    (func (export "bad") (param $n i32) (result i32) (call $get (local.get $n)))
    (func (export "double") (param $n i32) (result i32) (local $h i32)
      (local.set $h (call $new (i32.const 7))) (call $drop (local.get $h))
      (call $drop (local.get $h)) (i32.const 0)))
  (core instance $i (instantiate $m (with "l" (instance $libc)) (with "h" (instance
    (export "new" (func $new)) (export "get" (func $get)) (export "sum" (func $sum))
    (export "consume" (func $consume)) (export "drop" (func $drop))))))
"""
    + _lifted("news", "gets", "sums", "consumes", "leak", "bad", "double")
    + ")"
)
"""Makes, lends, gives away, leaks and misuses handles of the host's resource `store`."""

GUEST_RESOURCE = r"""(component
 (core module $m
  (func (export "get") (param i32) (result i32) (i32.add (local.get 0) (i32.const 100))))
 (core instance $i (instantiate $m))
 (type $r (resource (rep i32)))
 (core func $new (canon resource.new $r))
 (core func $rep (canon resource.rep $r))
 (core module $n (import "h" "new" (func $new (param i32) (result i32)))
  (import "h" "rep" (func $rep (param i32) (result i32)))
  (func (export "ctor") (param i32) (result i32) (call $new (local.get 0)))
  (func (export "take") (param i32) (result i32) (call $rep (local.get 0))))
 (core instance $j (instantiate $n (with "h" (instance
   (export "new" (func $new)) (export "rep" (func $rep))))))
 (export $rr "counter" (type $r))
 (func (export "ctor") (param "n" u32) (result (own $rr)) (canon lift (core func $j "ctor")))
 (func (export "get") (param "self" (borrow $rr)) (result u32) (canon lift (core func $i "get")))
 (func (export "take") (param "it" (own $rr)) (result u32) (canon lift (core func $j "take"))))"""
"""Exports a resource of its own: `ctor` makes one, `get` borrows it, `take` consumes it."""

ASYNC_LIFTED = r"""(component
  (import "t:host/api" (instance $host (export "tick" (func (param "x" u32) (result u32)))))
  (alias export $host "tick" (func $tick))
  (core func $tick' (canon lower (func $tick)))
  (core func $ret (canon task.return (result u32)))
  (core module $M
    (import "" "tick" (func $tick (param i32) (result i32)))
    (import "" "ret" (func $ret (param i32)))
    (func (export "run") (param i32) (result i32)
      (call $ret (call $tick (local.get 0)))
      (i32.const 0))
    (func (export "cb") (param i32 i32 i32) (result i32) unreachable))
  (core instance $m (instantiate $M (with "" (instance
    (export "tick" (func $tick')) (export "ret" (func $ret))))))
  (func (export "run") async (param "n" u32) (result u32)
    (canon lift (core func $m "run") async (callback (core func $m "cb")))))"""
"""An export that WIT declares `async`; its import is a plain function."""
