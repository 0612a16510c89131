package main

import "github.com/spf13/cobra"

func (a *app) benchCommand() *cobra.Command {
	return &cobra.Command{Use: "bench", Short: "Measure the mesh on this machine"}
}
