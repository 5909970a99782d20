// The control plane of the test clusters: etcd and kube-apiserver in one program, which plays the part that it is
// called by (etcd and kube-apiserver are links to it). One program builds faster and is smaller than two.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch filepath.Base(os.Args[0]) {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "call this program through a link named etcd or kube-apiserver")
		os.Exit(2)
	}
}
