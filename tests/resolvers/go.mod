module meshgate/tests/resolvers

go 1.21
