//go:build unix

package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// settled writes a file and returns its stamp with a moment at which that is old enough to hold.
func settled(t *testing.T, path, text string) (Stamp, time.Time) {
	t.Helper()
	write(t, path, []byte(text))
	s, err := StampOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return s, time.Unix(0, s.changed).Add(fresh)
}

func TestStampHoldsWhileNothingIsDoneToTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	s, look := settled(t, path, beat1)
	if !s.Holds(path, look) || !s.Holds(path, look.Add(time.Hour)) {
		t.Error("an untouched file is not told")
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if !s.Holds(path, look) {
		t.Error("reading counts as a change")
	}
	for name, read := range map[string]func(string) (File, error){"Read": Read, "ReadStable": ReadStable} {
		if f, err := read(path); err != nil || f.Stamp != s {
			t.Errorf("%s: stamp %+v, %v; want %+v", name, f.Stamp, err, s)
		}
	}
}

func TestFreshStampNeverHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	s, old := settled(t, path, beat1)
	if s.Holds(path, old.Add(-1)) || s.Holds(path, time.Unix(0, s.changed)) || s.Holds(path, time.Time{}) {
		t.Error("a change in the same instant would not be told")
	}
}

// Whatever was done is done until the clock by which the kernel stamps has moved: it may stand still for some ms.
func TestStampTellsEveryChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"in place, with the same size and the old mtime": func(t *testing.T, path string) {
			t.Helper()
			was, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, []byte(beat2))
			if err := os.Chtimes(path, time.Time{}, was.ModTime()); err != nil {
				t.Fatal(err)
			}
			if is, err := os.Stat(path); err != nil || !is.ModTime().Equal(was.ModTime()) || is.Size() != was.Size() {
				t.Fatalf("%+v, %v; want %+v", is, err, was)
			}
		},
		"its mode": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
		},
		"another file of the same text renamed over it": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Rename(write(t, path+".tmp", []byte(beat1)), path); err != nil {
				t.Fatal(err)
			}
		},
		"a link to a copy in its place": func(t *testing.T, path string) {
			t.Helper()
			if err := errors.Join(os.Rename(path, path+".old"), os.Symlink(path+".old", path)); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.lock")
			s, look := settled(t, path, beat1)
			deadline := time.Now().Add(10 * time.Second)
			for ticked := false; !ticked; {
				probe, _ := settled(t, path+".clock", "x")
				ticked = probe.changed > s.changed
				if time.Now().After(deadline) {
					t.Fatal("the file system's clock stands still")
				}
			}
			change(t, path)
			if s.Holds(path, look) {
				t.Errorf("%+v holds", s)
			}
		})
	}
}

func TestStampOfWhatIsNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	if s, err := StampOf(path); !errors.Is(err, fs.ErrNotExist) || s != (Stamp{}) {
		t.Errorf("missing: %+v, %v", s, err)
	}
	if !(Stamp{}).Holds(path, time.Time{}) {
		t.Error("a file that is still missing is not told")
	}
	if (Stamp{}).Holds(filepath.Join(write(t, path+".dir", nil), "x.lock"), time.Now()) {
		t.Error("what cannot be asked counts as missing")
	}
	target, _ := settled(t, path+".target", beat1)
	if err := os.Symlink(path+".target", path); err != nil {
		t.Fatal(err)
	}
	s, err := StampOf(path)
	if err != nil || s.Mode.Type() != fs.ModeSymlink || s.Ino == target.Ino {
		t.Errorf("a link was followed: %+v, %v", s, err)
	}
	if (Stamp{}).Holds(path, time.Now().Add(time.Hour)) {
		t.Error("a link counts as missing")
	}
}
