package lease

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/disktest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// onSmallDisk runs a test on a tmpfs of 64 KiB, its temporary directories included.
func onSmallDisk(t *testing.T, test func(disk string)) {
	t.Helper()
	disktest.Small(t, func(t *testing.T, disk string) {
		t.Setenv("TMPDIR", disk)
		test(disk)
	})
}

func TestKeepOnAFullDisk(t *testing.T) {
	onSmallDisk(t, func(disk string) {
		t.Run("that has room again", func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				k.wait(sec)
				empty := disktest.Fill(t, disk)
				k.wait(8 * sec)
				k.held()
				if got := k.renewed(); got < 8*sec {
					t.Fatalf("renewed %v ago", got)
				}
				empty()
				k.wait(sec)
				k.held()
				if got := k.renewed(); got > sec {
					t.Errorf("renewed %v ago", got)
				}
				got := k.log.lines()
				if len(got) < 2 || got[len(got)-1] != `level=INFO msg="lease renewal recovered" id=agent-1 failures=5` {
					t.Errorf("logged %q", got)
				}
				k.wait(time.Minute)
				k.held()
			})
		})
		t.Run("that stays full", func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				k.wait(sec)
				defer disktest.Fill(t, disk)()
				was := raw(t, k.store)
				k.wait(9 * sec)
				k.held()
				if age := k.lostAfter(); age <= 10*sec || age >= 12*sec {
					t.Errorf("told after %v", age)
				}
				if err := k.ended("lost"); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("the cause is not told: %v", err)
				}
				if !bytes.Equal(raw(t, k.store), was) {
					t.Errorf("the lease is now %q", raw(t, k.store))
				}
				k.wait(6 * sec)
				if _, err := k.another().Claim(t.Context(), agent, other("owner-b")); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("claimed: %v", err)
				}
				if !bytes.Equal(raw(t, k.store), was) || readCount(t, k.store) != "1\n" {
					t.Error("a claim that failed has changed something")
				}
				// A person can still remove it, and its holder could: nothing has to be written for that.
				log := &audit.Log{Path: filepath.Join(filepath.Dir(disk), "audit", "audit.jsonl")} // on another disk
				broke(t, k.another(), look(t, k.another()), Removal{Log: log})
				if names, err := os.ReadDir(k.store.Dir); err != nil || len(names) != 2 {
					t.Errorf("files %q (%v)", namesOf(names), err)
				}
			})
		})
	})
}

func TestKeepOnADiskThatTurnsReadOnly(t *testing.T) {
	onSmallDisk(t, func(disk string) {
		keep(t, func(k *keeping) {
			t := k.T
			k.wait(sec)
			must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			writable := func() { must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT, "")) }
			t.Cleanup(writable)
			k.wait(8 * sec)
			k.held()
			if _, err := k.another().Claim(t.Context(), agent, other("owner-b")); !errors.Is(err, syscall.EROFS) {
				t.Errorf("claimed: %v", err)
			}
			if err := k.lease.Verify(t.Context()); err != nil {
				t.Errorf("verify: %v", err)
			}
			if info := look(t, k.another()); info.Verdict.State != verdict.Late {
				t.Errorf("others see %s", info.Verdict.Sentence)
			}
			writable()
			k.wait(sec)
			k.held()
			if got := k.renewed(); got > sec {
				t.Errorf("renewed %v ago", got)
			}
			must(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
			if age := k.lostAfter(); age <= 10*sec || age >= 12*sec {
				t.Errorf("told after %v", age)
			}
			if err := k.ended("lost"); !errors.Is(err, syscall.EROFS) {
				t.Errorf("the cause is not told: %v", err)
			}
			if err := k.lease.Release(); !errors.Is(err, syscall.EROFS) {
				t.Errorf("released: %v", err)
			}
		})
	})
}

func TestLeaseThatOutlivesItsDisk(t *testing.T) {
	onSmallDisk(t, func(disk string) {
		keep(t, func(k *keeping) {
			t := k.T
			k.wait(sec)
			was := readLease(t, k.store)
			// Another file system comes to lie over it: what is there now is another directory of the same name.
			must(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"))
			t.Cleanup(func() { _ = syscall.Unmount(disk, 0) })
			must(t, os.MkdirAll(k.store.Dir, 0o700))
			put(t, k.store, leaseSuffix, encoded(&was, "claim-2"), 0)
			k.wait(4*sec + time.Millisecond)
			if !isClosed(k.lease.Lost()) {
				t.Error("the loss was not told")
			}
			k.ends("lost")
			must(t, k.lease.Release())
			if now := readLease(t, k.store); now.ClaimID != "claim-2" {
				t.Errorf("now %+v", now)
			}
		})
	})
}

func encoded(r *record.Lease, claimID string) []byte {
	other := *r
	other.ClaimID = claimID
	return other.Encode()
}
