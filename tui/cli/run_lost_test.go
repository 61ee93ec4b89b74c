package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast/fslock"
	"holdfast/lease"
)

// What was lost before the command began is not used.
func TestLostBeforeItBegins(t *testing.T) {
	for _, what := range []string{"lock", "lease"} {
		root := t.TempDir()
		r := &running{claiming: claiming{app: &app{Env: Env{Stderr: t.Output(), Getenv: os.Getenv}, root: root}}}
		file := filepath.Join(root, "leases", "x.lease.json")
		if what == "lock" {
			file = filepath.Join(root, "x.lock")
			r.lock = file
		} else {
			r.lease = "x"
		}
		held, err := r.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		err = r.confirm(held)
		p, ok := errors.AsType[*problem](err)
		if !ok || p.code != codeLost || !errors.Is(err, lease.ErrLost) && !errors.Is(err, fslock.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
