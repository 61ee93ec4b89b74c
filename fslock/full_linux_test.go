package fslock

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/disktest"
	"holdfast/fslock/record"
)

// onFullDisk is a test in fake time on a small disk.
func onFullDisk(t *testing.T, test func(t *testing.T, c *bootClock, disk string)) {
	t.Helper()
	disktest.Small(t, func(t *testing.T, disk string) {
		inFakeTime(t, func(t *testing.T, c *bootClock, _ string) { test(t, c, disk) })
	})
}

func TestFullDiskIsToldAtOnce(t *testing.T) {
	onFullDisk(t, func(t *testing.T, c *bootClock, disk string) {
		disktest.Fill(t, disk)
		began := time.Now()
		refusedAtOnce(t, timed(4242, c), filepath.Join(disk, "a.lock"), disk, "", syscall.ENOSPC)
		if d := time.Since(began); d > 0 {
			t.Errorf("after %v", d)
		}
	})
}

func TestDeadLockOnAFullDiskIsToldAtOnce(t *testing.T) {
	onFullDisk(t, func(t *testing.T, c *bootClock, disk string) {
		path := putLock(t, disk, "a.lock", lockRecord(0, dead))
		disktest.Fill(t, disk)
		_, err := timed(5151, c).TryAcquire(path)
		wantErrors(t, "try", err, syscall.ENOSPC)
		_, err = timed(5151, c).Acquire(t.Context(), path)
		wantErrors(t, "acquire", err, syscall.ENOSPC)
		if got := strings.Join(names(t, disk), " "); got != "a.lock filler" {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestWaiterThatWasThereBeforeTheDiskWasFullGetsItsLock(t *testing.T) {
	onFullDisk(t, func(t *testing.T, c *bootClock, disk string) {
		path := filepath.Join(disk, "a.lock")
		held := take(t, timed(4242, c), path)
		w := acquiring(t.Context(), timed(5151, c), path)
		time.Sleep(time.Second)
		disktest.Fill(t, disk)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := held.Verify(); err != nil {
			t.Errorf("the holder's beats: %v", err)
		}
		if r := lockAt(t, path); time.Now().UnixMilli()-int64(r.HeartbeatAtMS) > 6000 {
			t.Errorf("the holder does not beat: %s", contentOf(t, path))
		}
		giveUp(t, held)
		lock := w.got(t)
		time.Sleep(time.Minute)
		if err := lock.Verify(); err != nil {
			t.Errorf("the new holder's beats: %v", err)
		}
		giveUp(t, lock)
		if got := strings.Join(names(t, disk), " "); got != "filler" {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestWaiterOnAFullDiskWaitsForRoomToTakeOver(t *testing.T) {
	onFullDisk(t, func(t *testing.T, c *bootClock, disk string) {
		path := putLock(t, disk, "a.lock", lockRecord(0))
		w := acquiring(t.Context(), timed(5151, c), path)
		time.Sleep(time.Second)
		if err := rewrite(path, lockRecord(0, dead).Encode()); err != nil { // to take it over wants a token, which has no room
			t.Fatal(err)
		}
		empty := disktest.Fill(t, disk)
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-w.done:
			t.Fatalf("it does not wait: %v", w.err)
		default:
		}
		empty()
		freed := time.Now()
		lock := w.got(t)
		if d := time.Since(freed); d > time.Second {
			t.Errorf("it took %v", d)
		}
		giveUp(t, lock)
	})
}

func TestWaiterThatCameToAFullDisk(t *testing.T) {
	onFullDisk(t, func(t *testing.T, c *bootClock, disk string) {
		for _, room := range []bool{true, false} {
			path := filepath.Join(disk, "a.lock")
			held := take(t, timed(4242, c), path)
			empty := disktest.Fill(t, disk)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			w := acquiring(ctx, timed(5151, c), path)
			time.Sleep(time.Second)
			if got := tempsIn(t, disk); len(got) != 0 {
				t.Errorf("temps: %q", got)
			}
			if room {
				empty()
				time.Sleep(time.Second)
				if got := tempsIn(t, disk); len(got) != 1 {
					t.Errorf("when there is room: temps %q", got)
				}
			} else if err := os.Link(path, filepath.Join(disk, "kept")); err != nil { // its block does not become room
				t.Fatal(err)
			}
			giveUp(t, held)
			<-w.done
			cancel()
			if room {
				giveUp(t, w.got(t))
				continue
			}
			wantErrors(t, "when it must create", w.err, syscall.ENOSPC)
			empty()
			if got := names(t, disk); len(got) != 1 {
				t.Errorf("left behind: %q", got)
			}
		}
	})
}

func TestBeatThatHasNoRoomIsToldInTimeAndMended(t *testing.T) {
	onFullDisk(t, func(t *testing.T, c *bootClock, disk string) {
		path := filepath.Join(disk, "a.lock")
		lock := take(t, timed(4242, c), path)
		whole := contentOf(t, path)
		empty := disktest.Fill(t, disk)
		if err := os.Truncate(path, 0); err != nil { // its block is given back
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(disk, "filler"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(staleAfter + beatInterval)
		wantErrors(t, "while there is no room", lock.Verify(), ErrStale)
		if isLost(lock) {
			t.Error("it counts as lost")
		}
		empty()
		time.Sleep(beatInterval)
		synctest.Wait()
		if err := lock.Verify(); err != nil {
			t.Errorf("when there is room: %v", err)
		}
		if now := contentOf(t, path); len(now) != len(whole) {
			t.Errorf("%d bytes, were %d", len(now), len(whole))
		}
		if _, _, err := record.ReadLock(path); err != nil {
			t.Error(err)
		}
		giveUp(t, lock)
	})
}
