package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build is what the program knows about its own making; empty: unknown.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	b := readBuild()
	return a.print(func(w io.Writer) {
		if a.json {
			writeJSON(w, b)
			return
		}
		fmt.Fprintf(w, "holdfast %s", b.Version)
		if b.Revision != "" {
			fmt.Fprintf(w, " (%.12s", b.Revision)
			if b.Modified {
				fmt.Fprint(w, ", modified")
			}
			fmt.Fprint(w, ")")
		}
		fmt.Fprintf(w, " %s %s\n", b.Go, b.Platform)
	})
}
