//go:build unix

package audit_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/audit"
)

func TestPlantedInPlaceOfTheLog(t *testing.T) {
	for what, plant := range map[string]func(path, victim string) error{
		"a symlink":   func(path, victim string) error { return os.Symlink(victim, path) },
		"a FIFO":      func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory": func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"a socket": func(path, _ string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(path)})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		},
	} {
		for _, dangling := range []bool{false, true} {
			for _, name := range []string{"audit.jsonl", ".audit.jsonl.guard"} {
				t.Run(what+" as "+name, func(t *testing.T) {
					dir := t.TempDir()
					t.Chdir(dir) // a socket's name must be short
					victim := filepath.Join(dir, "victim")
					if !dangling {
						must(t, os.WriteFile(victim, []byte("precious"), 0o600))
					}
					path := filepath.Join(dir, name)
					must(t, plant(path, victim))
					l := &audit.Log{Path: filepath.Join(dir, "audit.jsonl")}
					began := time.Now()
					err := l.Append(entry("x"))
					if !errors.Is(err, audit.ErrNotRegular) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), path) {
						t.Errorf("append: %v", err)
					}
					for _, err := range l.Entries() {
						if !errors.Is(err, audit.ErrNotRegular) {
							t.Errorf("read: %v", err)
						}
					}
					if _, _, err := l.Highest("/x"); errors.Is(err, audit.ErrNotRegular) != (name == "audit.jsonl") {
						t.Errorf("highest: %v", err)
					}
					if took := time.Since(began); took > time.Second {
						t.Errorf("it took %v", took)
					}
					if st, err := os.Lstat(path); err != nil || st.Mode().IsRegular() {
						t.Errorf("what was planted is gone: %v", err)
					}
					data, err := os.ReadFile(victim)
					if dangling != errors.Is(err, fs.ErrNotExist) || !dangling && string(data) != "precious" {
						t.Errorf("the target was touched: %q, %v", data, err)
					}
				})
			}
		}
	}
}

func TestNobodyElseReadsTheLog(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	l := logIn(t)
	must(t, l.Append(entry("x")))
	dir := filepath.Dir(l.Path)
	for path, want := range map[string]fs.FileMode{
		l.Path: 0o600, filepath.Join(dir, ".audit.jsonl.guard"): 0o600, dir: 0o700 | fs.ModeDir, filepath.Dir(dir): 0o700 | fs.ModeDir,
	} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, want %v (%v)", path, st.Mode(), want, err)
		}
	}
}
