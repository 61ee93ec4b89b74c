package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"holdfast/fslock/audit"
	"holdfast/lease"
	"holdfast/watch"
)

// What a screen that the tests start as a process of its own is told.
const (
	rootVariable  = "HOLDFAST_TUI_ROOT"
	crashVariable = "HOLDFAST_TUI_CRASH" // for reports
	measureRole   = "measure"            // see bench_unix_test.go
)

// play is the main of such a process: a real screen on its terminal. The role says what the key x does to it.
func play(role string) int {
	if role == measureRole {
		return measure()
	}
	root := os.Getenv(rootVariable)
	w := &watch.Watcher{Roots: []watch.Root{{Path: root}}}
	s := &Screen{
		Stores: w.Store, Locker: w.Locker(), Audit: &audit.Log{Path: os.Getenv(crashVariable) + "/audit.jsonl"},
		Claimant: lease.Claimant{Owner: "screen", Block: "test"}, In: os.Stdin, Out: os.Stdout,
	}
	s.tests.crashDir = os.Getenv(crashVariable)
	s.Watch = func(ctx context.Context, emit func(*watch.Snapshot)) error {
		return polling(w, 50*time.Millisecond)(ctx, func(s *watch.Snapshot) {
			emit(s)
			if _, err := os.Stat(root + "/panic"); err == nil {
				panic("the watcher panics")
			}
		})
	}
	s.tests.onKey = func(h *harness, key string) {
		if key != "x" {
			return
		}
		switch role {
		case "update":
			panic("update panics")
		case "view":
			h.model.paint = nil
		case "job":
			h.model.describe, h.model.tab = nil, tabProcess
		case "block":
			select {}
		}
	}
	err := s.Run(context.Background())
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "holdfast:", err)
	if end, ok := errors.AsType[*ExitError](err); ok {
		return end.Code
	}
	return exitFailed
}
