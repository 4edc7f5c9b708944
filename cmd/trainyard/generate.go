package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"trainyard/internal/clock"
	"trainyard/internal/server"
	"trainyard/internal/spec"
)

// generateCommand writes the files that are made from the code.
func generateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "generate DIR", Short: "Write the generated files", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := generated(cmd.Root())
			if err != nil {
				return err
			}

			for name, content := range files {
				path := filepath.Join(args[0], filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // part of the sources
					return fmt.Errorf("create directory: %w", err)
				}
				if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // part of the sources
					return fmt.Errorf("write %s: %w", name, err)
				}
			}

			return nil
		},
	}
}

// generated returns the files by name.
func generated(root *cobra.Command) (map[string][]byte, error) {
	clk := clock.NewSteady()
	srv := server.New(server.Config{Version: "1"}, server.Deps{
		Loop: server.NewLoop(server.LoopConfig{Clock: clk}), Clock: clk, Registry: prometheus.NewRegistry(),
	}, "")
	openapi, err := srv.OpenAPI()
	if err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}

	return map[string][]byte{
		"api/openapi.yaml":             openapi,
		"api/jobfile.schema.json":      spec.Schema(),
		"docs/reference/cli.md":        cliReference(root),
		"docs/reference/config.md":     configReference(),
		"docs/reference/exit-codes.md": exitCodeReference(root),
		"docs/reference/jobfile.md":    spec.Reference(),
		"docs/reference/lifecycle.md":  lifecycle(),
	}, nil
}
