"""The library's operations over the store's Unix socket, as HTTP and JSON; and who asks there."""
