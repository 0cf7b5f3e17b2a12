"""The host function that the order guest of `shem demo` imports: a charge by HTTP POST.

An example of an embedder's own host function: the derived key of the call travels as the
`idempotency-key` header, so that a bank that honours it charges once however often it is asked.
"""

import os
from typing import Final

import httpx

from executor import Err, HostCall, Ok, Transient, host_function
from executor.cli.demo_receiver import RECEIVER_VARIABLE

TIMEOUT_S: Final = 10.0


@host_function(
    "demo:orders/bank",
    "charge: func(who: string, cents: u64) -> result<string, string>",
    type="write-remote",
)
async def charge(call: HostCall, who: str, cents: int) -> Ok | Err:
    """Asks the bank once; answers with its reference or with why it refused.

    Raises: Transient if the bank was not reached; the call is then tried again by policy,
    under the same key.
    """
    url = os.environ[RECEIVER_VARIABLE]
    headers = {"idempotency-key": call.key}
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=TIMEOUT_S) as client:  # noqa: S501  # plain HTTP on this machine
        try:
            answer = await client.post(url, json={"who": who, "cents": cents}, headers=headers)
        except httpx.TransportError as error:
            raise Transient(f"the bank at {url} was not reached: {error!r}") from error
    if answer.is_server_error:
        raise Transient(f"the bank at {url} answered {answer.status_code}")
    if answer.is_success:
        return Ok(str(answer.json()["reference"]))
    return Err(answer.text)
