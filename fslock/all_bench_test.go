package fslock

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/fslock/disktest"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// BenchmarkInspectAllOf10000 looks at 10,000 locks of this process without tokens. The metric "ratio" is its time over
// that of opening, reading and closing the same files in parallel, measured in turn with it; "B/entry" is what the look
// keeps of each.
func BenchmarkInspectAllOf10000(b *testing.B) {
	const locks = 10_000
	dir, self, old := b.TempDir(), proc.Local().Self(), time.Now().Add(-2*time.Second)
	var paths []string
	for i := range locks {
		path := filepath.Join(dir, fmt.Sprintf("%05d.lock", i))
		r := lockRecord(time.Minute, func(r *record.Lock) {
			r.PID, r.Hostname, r.BootID, r.ProcessStartTime = uint32(self.PID), self.Host, &self.BootID, &self.StartTicks
			r.WriterEpoch = fmt.Sprintf("0b0c6f0e-1a55-4f0c-8a4e-0000000%05d", i)
			r.Ours = record.Ours{PIDNS: self.PIDNS, PidfdIno: self.PidfdIno, TimeNS: self.TimeNS, BeatBootMS: proc.SinceBoot().Milliseconds()}
		})
		if err := os.WriteFile(path, r.Encode(), 0o600); err != nil {
			b.Fatal(err)
		}
		// A heartbeat comes every 5 s: all but a few were written long ago.
		if err := os.Chtimes(path, old, old); err != nil {
			b.Fatal(err)
		}
		paths = append(paths, path)
	}
	l := &Locker{}
	var looking, reading time.Duration
	var infos Infos
	for b.Loop() {
		start := time.Now()
		infos = l.InspectAll(b.Context(), paths, nil, nil)
		looking += time.Since(start)
		b.StopTimer()
		start = time.Now()
		disktest.ReadAll(b, paths)
		reading += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(looking.Seconds()/reading.Seconds(), "ratio")
	b.ReportMetric(float64(disktest.Kept(&infos))/locks, "B/entry")
}

// BenchmarkInspect looks at one lock of this process, as is done of each heartbeat.
func BenchmarkInspect(b *testing.B) {
	l, path := &Locker{}, filepath.Join(b.TempDir(), "a.lock")
	lock, err := l.TryAcquire(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	b.ReportAllocs()
	for b.Loop() {
		if info := l.Inspect(path); info.Facts.Record == nil {
			b.Fatal(info.Verdict)
		}
	}
}
