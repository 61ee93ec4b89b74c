package fslock

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// In a bubble it is the year 2000, so that every file's time lies in the future: only watching tells anything then.

func TestTornLockWithATimeInTheFutureIsWatched(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "cache.lock"), nil, 0)
	synctest.Test(t, func(t *testing.T) {
		l := &Locker{Table: machine()}
		for began := time.Now(); time.Since(began) <= 15*time.Second; time.Sleep(time.Second) {
			expect(t, l.Inspect(path).Verdict, want{verdict.Unreadable, "malformed", verdict.At, 0})
		}
		expect(t, l.Inspect(path).Verdict, want{verdict.Unreadable, "malformed", verdict.Now, 0})
		// Another Locker has not seen what this one has.
		expect(t, (&Locker{Table: machine()}).Inspect(path).Verdict, want{verdict.Unreadable, "malformed", verdict.At, 0})
	})
}

func TestWatchingStartsAnew(t *testing.T) {
	const watched = 20 * time.Second
	for _, tc := range []struct {
		what   string
		change func(t *testing.T, path string)
		anew   bool
	}{
		{"nothing happens", func(*testing.T, string) {}, false},
		{"nobody looks for a while", func(*testing.T, string) { time.Sleep(1200 * time.Millisecond) }, true},
		{"it beats in place", func(t *testing.T, path string) {
			t.Helper()
			put(t, path, lockRecord(-time.Second, remote).Encode(), 0)
		}, true},
		{"it is touched", func(t *testing.T, path string) {
			t.Helper()
			at := time.Now().Add(time.Minute)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a copy takes its place", func(t *testing.T, path string) {
			t.Helper()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			copied := put(t, path+".copy", data, 0)
			if err := os.Chtimes(copied, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(copied, path); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := putLock(t, t.TempDir(), "cache.lock", lockRecord(0, remote))
				l := &Locker{Table: machine()}
				for began := time.Now(); time.Since(began) < watched; time.Sleep(time.Second) {
					l.Inspect(path)
				}
				tc.change(t, path)
				f := l.Inspect(path).Facts
				still := f.Look.Sub(f.Still)
				if tc.anew && still != 0 || !tc.anew && still < watched {
					t.Errorf("watched unchanged for %v", still)
				}
			})
		})
	}
}

func TestWhatVanishedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := putLock(t, t.TempDir(), "cache.lock", lockRecord(0, remote))
		l := &Locker{Table: machine()}
		l.Inspect(path)
		time.Sleep(time.Second)
		aside := path + ".aside"
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		if f := l.Inspect(path).Facts; !f.Still.IsZero() {
			t.Errorf("still = %v", f.Still)
		}
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
		if f := l.Inspect(path).Facts; f.Look != f.Still {
			t.Errorf("what went and came back was watched for %v", f.Look.Sub(f.Still))
		}
	})
}

func TestRemoteClockInTheFutureDoesNotLiveForEver(t *testing.T) {
	path := putLock(t, t.TempDir(), "cache.lock", lockRecord(0, remote))
	synctest.Test(t, func(t *testing.T) {
		l := &Locker{Table: machine()}
		for began := time.Now(); time.Since(began) <= 75*time.Second; time.Sleep(time.Second) {
			expect(t, l.Inspect(path).Verdict, want{verdict.Remote, "", verdict.At, verdict.Clock})
		}
		expect(t, l.Inspect(path).Verdict, want{verdict.Expired, "", verdict.Now, verdict.Clock})
	})
}

func TestWhatCannotBeReadIsNotWatched(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "cache.lock"), make([]byte, record.MaxSize+1), 0)
	synctest.Test(t, func(t *testing.T) {
		l := &Locker{Table: machine()}
		for range 2 {
			if f := l.Inspect(path).Facts; !f.Still.IsZero() {
				t.Errorf("still = %v", f.Still)
			}
			time.Sleep(time.Second)
		}
	})
}
