package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holdfast/lease"
	"holdfast/tui"
	"holdfast/tui/demo"
	"holdfast/tui/text"
	"holdfast/watch"
)

// screen shows the roots until its user quits.
func (a *app) screen(ctx context.Context, args []string) error {
	roots, err := a.roots(args)
	if err != nil {
		return err
	}
	return a.play(ctx, roots, "")
}

func (a *app) play(ctx context.Context, roots []watch.Root, note string) error {
	w := &watch.Watcher{Roots: roots, ReadOnly: a.readOnly}
	s := &tui.Screen{
		Watch:    w.Run,
		Looked:   w.Looked,
		Alone:    true,
		Stores:   w.Store,
		History:  w.History,
		Locker:   w.Locker(),
		Rescan:   w.Rescan,
		Exports:  a.exports(),
		ReadOnly: a.readOnly,
		Claimant: lease.Claimant{Channel: "holdfast", Version: readBuild().Version},
		ASCII:    a.style().ASCII,
		Theme:    a.theme,
		NoColor:  !text.Color(a.color, a.Getenv, a.Output),
		Demo:     note,
		Home:     a.Home,

		Multiplexer: text.Multiplexer(a.Getenv),

		In:  a.Stdin,
		Out: a.terminal,
	}
	err := s.Run(ctx)
	if end, ok := errors.AsType[*tui.ExitError](err); ok {
		return &problem{code: end.Code, err: end}
	}
	return failed(err)
}

// exports are what ^s writes: what `ls` prints, as JSON and as a table without colours and of any width.
func (a *app) exports() []tui.Export {
	return []tui.Export{
		{Ext: "json", Write: func(w io.Writer, s *watch.Snapshot) error {
			enc := encoder{describe: describe}
			writeJSON(w, enc.look(s, judgedWhole(s.Time, s.Entries)))
			return nil
		}},
		{Ext: "txt", Write: func(w io.Writer, s *watch.Snapshot) error {
			plain := *a
			plain.Output, plain.color = false, text.ColorNever
			plain.table(w, s, s.Entries, false)
			return nil
		}},
	}
}

// judgedWhole are the entries with their evidence, which those of a snapshot come without.
func judgedWhole(now time.Time, entries []*watch.Entry) []*watch.Entry {
	judged := make([]*watch.Entry, len(entries))
	for i, e := range entries {
		whole := *e
		whole.Verdict = e.Judge(now)
		judged[i] = &whole
	}
	return judged
}

func (a *app) demoCommand() *cobra.Command {
	var list bool
	var only []string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make a playground of real processes and show it",
		Long: "Makes a temporary directory of leases and locks that real processes hold, lose and block, and shows it.\n" +
			"Nothing of it is left afterwards.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a.root != "":
				return usage("--root does not go with demo: it plays in a directory of its own")
			case list:
				return a.listScenarios()
			}
			return a.demo(cmd.Context(), only)
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the scenarios")
	cmd.Flags().StringSliceVar(&only, "scenario", nil, "play only this one (may be repeated)")
	return cmd
}

func (a *app) listScenarios() error {
	all := demo.Scenarios()
	return a.print(func(w io.Writer) {
		if a.json {
			type scenario struct {
				Name string `json:"name"`
				Says string `json:"says"`
			}
			list := make([]scenario, 0, len(all))
			for _, s := range all {
				list = append(list, scenario(s))
			}
			writeJSON(w, list)
			return
		}
		width := 0
		for _, s := range all {
			width = max(width, len(s.Name))
		}
		for _, s := range all {
			fmt.Fprintf(w, "%-*s  %s\n", width, s.Name, s.Says)
		}
	})
}

// demo plays on the screen, or prints the table of the playground where there is no terminal.
func (a *app) demo(ctx context.Context, only []string) (err error) {
	starting, stop := untilSignal(ctx)
	defer stop()
	ground, err := demo.Start(starting, only)
	var unknown *demo.ScenarioError
	switch {
	case errors.As(err, &unknown):
		return usage("%w", err)
	case starting.Err() != nil:
		if ground != nil {
			_ = ground.Close()
		}
		return endedBy(starting)
	case err != nil:
		return failed(err)
	}
	defer func() {
		if closing := ground.Close(); err == nil {
			err = failed(closing)
		}
	}()
	roots := []watch.Root{{Path: ground.Root(), ChosenBy: "demo"}}
	if a.interactive() {
		stop() // the screen hears signals itself
		return a.play(ctx, roots, "demo: "+ground.Root()+", gone when you quit")
	}
	snap, err := a.look(starting, roots)
	switch {
	case starting.Err() != nil:
		return endedBy(starting)
	case err != nil:
		return err
	}
	return (&listing{app: a}).show(snap)
}

// interactive reports whether there is somebody to show a screen to.
func (a *app) interactive() bool {
	return a.Input && a.Output && a.Getenv("TERM") != "dumb" && !a.json
}
