// Command dashboards reads dashboards as JSON with the strict reader of Grafana's published schema: an unknown field,
// a missing one or a wrong type is an error, inside panels and queries, too.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func check(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	board := &dashboard.Dashboard{}
	if err := board.UnmarshalJSONStrict(raw); err != nil && err.Error() != "" {
		return err
	}
	if err := board.Validate(); err != nil && err.Error() != "" {
		return err
	}
	return nil
}

func main() {
	plugins.RegisterDefaultPlugins()
	code := 0
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Printf("%s: %v\n", path, err)
			code = 1
		}
	}
	os.Exit(code)
}
