package lease

import (
	"fmt"
	"os"
	"testing"
	"time"

	"holdfast/fslock/disktest"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// BenchmarkListOf10000 lists 10,000 leases that were renewed some seconds ago. The metric "ratio" is its time over that
// of opening, reading and closing the lease files and counters in parallel, measured in turn with it; "B/entry" is what
// the list keeps of each.
func BenchmarkListOf10000(b *testing.B) {
	const leases = 10_000
	s := &Store{Dir: b.TempDir()}
	self, now := proc.Local().Self(), time.Now()
	var files []string
	write := func(id, suffix string, data []byte) {
		path := s.path(id, suffix)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			b.Fatal(err)
		}
		if len(data) > 0 {
			files = append(files, path)
		}
	}
	for i := range leases {
		id := fmt.Sprintf("agent-%05d", i)
		r := record.Lease{
			InstanceID: id, OwnerBootID: "6f1f6c3e-54b1-4d1c-9d0f-2f6f4f0c9a11", BlockID: fmt.Sprintf("block-%05d", i),
			PID: uint32(self.PID), AcquiredAtMS: now.UnixMilli() - 60_000, RenewedAtMS: now.UnixMilli() - 1000, Epoch: 7,
			Hostname: self.Host, PIDStartS: self.StartUnix, Channel: "vm", Version: "1.2.3",
			ClaimID: fmt.Sprintf("0b0c6f0e-1a55-4f0c-8a4e-0000000%05d", i),
			Ours: record.Ours{
				PIDNS: self.PIDNS, PidfdIno: self.PidfdIno, TimeNS: self.TimeNS, BeatBootMS: proc.SinceBoot().Milliseconds() - 1000,
				KernelBootID: self.BootID, PIDStartTicks: self.StartTicks,
			},
		}
		write(id, leaseSuffix, r.Encode())
		write(id, counterSuffix, record.EncodeCounter(7))
		write(id, sectionSuffix, nil)
	}
	var looking, reading time.Duration
	var infos []Info
	for b.Loop() {
		var err error
		start := time.Now()
		if infos, err = s.List(b.Context()); err != nil || len(infos) != leases {
			b.Fatalf("%d leases, %v", len(infos), err)
		}
		looking += time.Since(start)
		b.StopTimer()
		start = time.Now()
		disktest.ReadAll(b, files)
		reading += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(looking.Seconds()/reading.Seconds(), "ratio")
	b.ReportMetric(float64(disktest.Kept(&infos))/leases, "B/entry")
}

// BenchmarkLook looks at one lease among few, as is done of each renewal.
func BenchmarkLook(b *testing.B) {
	s := &Store{Dir: b.TempDir()}
	if _, err := s.Claim(b.Context(), "agent-1", Claimant{Owner: "owner-a"}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Look("agent-1"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInspectFew is BenchmarkLook for a few at once; ns/op is of all eight.
func BenchmarkInspectFew(b *testing.B) {
	s := &Store{Dir: b.TempDir()}
	ids := make([]string, 8)
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%d", i)
		if _, err := s.Claim(b.Context(), ids[i], Claimant{Owner: "owner-a"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.InspectAll(b.Context(), ids); err != nil {
			b.Fatal(err)
		}
	}
}
