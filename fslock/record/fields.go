package record

// presence says what a missing or unset key of a record means.
type presence uint8

const (
	required presence = iota // a record without it is malformed
	optional                 // missing means the zero value; always written
	sparse                   // missing means unknown; not written when unknown
	ours                     // like sparse, but a value of a wrong type counts as missing
)

// A field is one known key of a record: where its value lies and what its absence means. The type of the
// place says which values are accepted: *string, *uint32, *uint64 and *int64 take just that, **string and
// **uint64 take null as well, **Guard an object.
type field struct {
	key   string
	place any
	presence
}

// fields are the lease's known keys in the order in which they are written.
func (l *Lease) fields() [19]field {
	return [...]field{
		{"instance_id", &l.InstanceID, required},
		{"owner_boot_id", &l.OwnerBootID, required},
		{"block_id", &l.BlockID, required},
		{"session_id", &l.SessionID, optional},
		{"pid", &l.PID, required},
		{"acquired_at_ms", &l.AcquiredAtMS, required},
		{"renewed_at_ms", &l.RenewedAtMS, required},
		{"epoch", &l.Epoch, optional},
		{"hostname", &l.Hostname, optional},
		{"pid_start_s", &l.PIDStartS, optional},
		{"channel", &l.Channel, optional},
		{"version", &l.Version, optional},
		{"claim_id", &l.ClaimID, optional},
		{"pid_ns", &l.Ours.PIDNS, ours},
		{"pidfd_ino", &l.Ours.PidfdIno, ours},
		{"time_ns", &l.Ours.TimeNS, ours},
		{"beat_boot_ms", &l.Ours.BeatBootMS, ours},
		{"kernel_boot_id", &l.Ours.KernelBootID, ours},
		{"pid_start_ticks", &l.Ours.PIDStartTicks, ours},
	}
}

// fields are the lock's known keys in the order in which they are written.
func (l *Lock) fields() [12]field {
	return [...]field{
		{"pid", &l.PID, required},
		{"hostname", &l.Hostname, required},
		{"process_start_time", &l.ProcessStartTime, sparse},
		{"boot_id", &l.BootID, sparse},
		{"created_at_ms", &l.CreatedAtMS, required},
		{"heartbeat_at_ms", &l.HeartbeatAtMS, required},
		{"writer_epoch", &l.WriterEpoch, optional},
		{"pid_ns", &l.Ours.PIDNS, ours},
		{"pidfd_ino", &l.Ours.PidfdIno, ours},
		{"time_ns", &l.Ours.TimeNS, ours},
		{"guard", &l.Ours.Guard, ours},
		{"beat_boot_ms", &l.Ours.BeatBootMS, ours},
	}
}

// SameOwner reports whether two records name the same owner: all known fields are equal but
// HeartbeatAtMS, which the owner moves. Our optional fields and unknown keys do not count, because an
// original that rewrites a record drops them.
func (l *Lock) SameOwner(o *Lock) bool {
	return l.PID == o.PID && l.Hostname == o.Hostname && l.CreatedAtMS == o.CreatedAtMS &&
		l.WriterEpoch == o.WriterEpoch && equal(l.ProcessStartTime, o.ProcessStartTime) && equal(l.BootID, o.BootID)
}

func equal[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
