//go:build kubelet_without_context

package main

import (
	"context"

	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Kubernetes up to 1.31 gives the kubelet its context at run time.
func newKubeletCommand(context.Context) *cobra.Command {
	return kubelet.NewKubeletCommand()
}
