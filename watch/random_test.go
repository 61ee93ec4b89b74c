package watch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/fslock/proc"
)

func TestAfterManyRandomChangesTheSnapshotIsThatOfAFreshLook(t *testing.T) {
	defer goleak.VerifyNone(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	mux, aft := filepath.Join(dir, "mux"), filepath.Join(dir, "aft")
	self, now := proc.Local().Self(), time.Now()
	gone := self
	gone.PID, gone.StartTicks, gone.StartUnix = 1<<22+1, 5, 5
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }

	file := func() string {
		if rnd.IntN(2) == 0 {
			return filepath.Join(mux, "leases", pick("a", "b", "c")+pick(".lease.json", ".epoch", ".lock"))
		}
		name := pick("cache.lock", "writer.lease", ".cache.lock.reclaim", ".cache.lock.tmp.4194305.1.0", "data.bin")
		return filepath.Join(aft, pick("index", "inspect"), pick(".", "k1", "k2", "k2/sub"), name)
	}
	content := func() []byte {
		who := self
		if rnd.IntN(2) == 0 {
			who = gone
		}
		switch rnd.IntN(6) {
		case 0:
			return nil
		case 1:
			return []byte("no record\n")
		case 2, 3:
			l := newLease(who, "a", now)
			l.ClaimID = fmt.Sprint(rnd.IntN(1000))
			return l.Encode()
		default:
			l := newLock(who, now)
			l.WriterEpoch = fmt.Sprint(rnd.IntN(1000))
			return l.Encode()
		}
	}
	change := func() {
		path := file()
		switch rnd.IntN(12) {
		case 0, 1, 2, 3:
			_ = os.RemoveAll(path) // a directory may be in its place
			put(t, path, content())
		case 4, 5, 6: // in place
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			_ = os.WriteFile(path, content(), 0o600)
		case 7, 8, 9:
			_ = os.RemoveAll(path)
		case 10:
			_ = os.Rename(path, file())
		case 11:
			switch rnd.IntN(5) {
			case 0:
				_ = os.RemoveAll(filepath.Dir(path))
			case 1:
				root := pick(mux, aft)
				_ = os.RemoveAll(root + ".old")
				_ = os.Rename(root, root+".old")
			case 2:
				root := pick(mux, aft)
				_ = os.Rename(root+".old", root)
			case 3:
				_ = os.Mkdir(path, 0o755)
			default:
				_ = os.RemoveAll(pick(mux, aft))
			}
		}
	}

	w := &Watcher{Roots: []Root{{Path: mux}, {Path: aft}}}
	r := start(t, w)
	defer r.stop()
	for range 10 {
		for range 100 {
			change()
			if rnd.IntN(10) == 0 {
				time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
			}
		}
		r.until(func(s *Snapshot) bool { return lines(s) == lines(look(t, mux, aft)) })
	}
}
