#!/bin/busybox sh
# First process of the guest: its root is that of the machine it runs on, read only, below a file system in memory.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod "$module"; done
$b mount -t virtiofs root /host -o ro || $b poweroff -f
$b mount -t tmpfs own /own -o size=2g
$b mkdir /own/upper /own/work
$b mount -t overlay root /new -o lowerdir=/host,upperdir=/own/upper,workdir=/own/work
$b mount -t proc proc /new/proc
$b mount -t sysfs sys /new/sys
$b mount -t devtmpfs dev /new/dev
$b mount -t cgroup2 cgroup /new/sys/fs/cgroup
$b mount -t bpf bpf /new/sys/fs/bpf
$b mount -t tmpfs own /new/run
release=$($b uname -r)
$b mkdir -p /new/lib/modules/$release
$b mount --bind "/host$($b cat /kernel)/lib/modules/$release" /new/lib/modules/$release
$b cp /script /new/run/script
exec $b switch_root /new /bin/sh -c '. /run/script; echo o > /proc/sysrq-trigger; sleep 60'
