package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock"
	"holdfast/lease"
)

// Behind a link, ".." is not where the letters say.
func TestAbsolutePathNamesTheSameFile(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "real", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("real", "sub"), filepath.Join(dir, "link")); err != nil {
		t.Skip(err) // not everybody may, on Windows
	}
	t.Chdir(dir)
	for path, want := range map[string]string{
		"x.lock":                          "x.lock",
		"link/x.lock":                     "link/x.lock",
		"./link/./x.lock":                 "link/x.lock",
		"link/../x.lock":                  "real/x.lock",
		filepath.Join(dir, "link/../x"):   "x", // cleaned by the caller
		dir + "/link/../x":                "real/x",
		"link/..":                         "real",
		"link/../../x.lock":               "x.lock",
		"none/../x.lock":                  "none/../x.lock", // which is no file
		"link/../sub/.././../link/x.lock": "real/sub/x.lock",
	} {
		got, err := absolute(path)
		if err != nil || !filepath.IsAbs(got) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
		if got != dir+"/"+want && filepath.ToSlash(got) != filepath.ToSlash(dir)+"/"+want {
			t.Errorf("%s: %s, want %s in %s", path, got, want, dir)
		}
	}
	// The working directory may be behind a link, too.
	t.Chdir("link")
	t.Setenv("PWD", filepath.Join(dir, "link"))
	if got, err := absolute("../x.lock"); got != filepath.Join(dir, "real", "x.lock") {
		t.Errorf("%s, %v", got, err)
	}
}

// Beside somebody who asks every few milliseconds, who asks five times a second gets nothing for long.
func TestWaitingClaimAsksOften(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := &lease.Store{Dir: dir}
		held, err := store.Claim(t.Context(), "x", lease.Claimant{})
		if err != nil {
			t.Fatal(err)
		}
		c := claiming{app: &app{Env: Env{Stderr: t.Output(), Getenv: os.Getenv}}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		asked := 0
		if got, err := c.claim(ctx, store, "x", false, func(error) { asked++ }); err == nil {
			t.Fatal("claimed while it was held: ", got.Path())
		}
		if asked < 65 || asked > 202 {
			t.Errorf("asked %d times in 5 s", asked)
		}
		if err := held.Release(); err != nil {
			t.Error(err)
		}
	})
}

// What was lost before the command began is not used.
func TestLostBeforeItBegins(t *testing.T) {
	for _, what := range []string{"lock", "lease"} {
		root := t.TempDir()
		r := &running{claiming: claiming{app: &app{Env: Env{Stderr: t.Output(), Getenv: os.Getenv}, root: root}}}
		file := filepath.Join(root, "leases", "x.lease.json")
		if what == "lock" {
			file = filepath.Join(root, "x.lock")
			r.lock = single{text: file, given: true}
		} else {
			r.lease = single{text: "x", given: true}
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
