package fslock

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/verdict"
)

// specials make what is no regular file, or too large a one, at a path.
func specials(t *testing.T) map[string]func(path string) error {
	t.Helper()
	live := putLock(t, t.TempDir(), "live.lock", lockRecord(time.Second))
	return map[string]func(path string) error{
		"a dangling symlink":       func(path string) error { return os.Symlink("nowhere", path) },
		"a symlink to itself":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"a symlink to a live lock": func(path string) error { return os.Symlink(live, path) },
		"a FIFO":                   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a directory":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a socket": func(path string) error {
			t.Chdir(filepath.Dir(path)) // a socket's path must be short
			s, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(path)})
			if err == nil {
				s.SetUnlinkOnClose(false)
				err = s.Close()
			}
			return err
		},
		"a device": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
		"a sparse GiB": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<30)
		},
	}
}

// atOnce runs what must not wait.
func atOnce(t *testing.T, look func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		look()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("looking hangs")
	}
}

func TestWhatIsNoFileIsUnreadableAtOnce(t *testing.T) {
	for what, make := range specials(t) {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			lock, token := filepath.Join(dir, "cache.lock"), filepath.Join(dir, ".cache.lock.reclaim")
			temp := filepath.Join(dir, ".cache.lock.tmp.4242.1.0")
			for _, path := range []string{lock, token, temp} {
				if err := make(path); err != nil {
					skip(t, "cannot make "+what+": ", err)
				}
			}
			cause := "not-regular"
			if what == "a sparse GiB" {
				cause = "too-large"
			}
			l := &Locker{Table: machine()}
			atOnce(t, func() {
				info := l.Inspect(lock)
				expect(t, info.Verdict, want{verdict.Unreadable, cause, verdict.Blocked, verdict.IsBlocked})
				if info.Token == nil || info.Token.State != verdict.Unknown {
					t.Errorf("token beside it = %+v", info.Token)
				}
				if tok := l.InspectToken(token); tok.Token.State != verdict.Unknown || tok.Verdict.Cause != cause || !tok.Facts.Blocks(time.Now()) {
					t.Errorf("token = %+v", tok)
				}
				if tmp := l.InspectTemp(temp); tmp.Verdict.State != verdict.InUse || tmp.Facts.Problem == nil {
					t.Errorf("temp = %+v", tmp)
				}
				infos := l.InspectAll(t.Context(), []string{lock}, []string{token}, []string{temp})
				if infos.Locks[0].Verdict.Cause != cause || infos.Tokens[0].Verdict.Cause != cause {
					t.Errorf("among many: %+v", infos)
				}
			})
		})
	}
}

func TestTokenThatIsNoFileBlocks(t *testing.T) {
	for what, make := range specials(t) {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			lock := putLock(t, dir, "cache.lock", lockRecord(time.Minute, dead))
			if err := make(filepath.Join(dir, ".cache.lock.reclaim")); err != nil {
				skip(t, "cannot make "+what+": ", err)
			}
			atOnce(t, func() {
				info := (&Locker{Table: machine()}).Inspect(lock)
				expect(t, info.Verdict, want{verdict.Dead, "gone", verdict.Blocked, verdict.IsBlocked})
				if !info.Verdict.Stuck || info.Token.State != verdict.Unknown {
					t.Errorf("stuck = %v, token = %+v", info.Verdict.Stuck, info.Token)
				}
			})
		})
	}
}
