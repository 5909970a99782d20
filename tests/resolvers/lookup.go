// Looks a name up by Go's own resolver and prints each address on a line: "lookup NAME", or "lookup srv NAME" for the
// targets of a service.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

func main() {
	resolver := net.Resolver{PreferGo: true}
	found, err := lookup(&resolver, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, text := range found {
		fmt.Println(text)
	}
}

func lookup(resolver *net.Resolver, words []string) ([]string, error) {
	if words[0] != "srv" {
		return resolver.LookupHost(context.Background(), words[0])
	}
	_, services, err := resolver.LookupSRV(context.Background(), "", "", words[1])
	var found []string
	for _, service := range services {
		found = append(found, fmt.Sprintf("%s:%d", service.Target, service.Port))
	}
	return found, err
}
