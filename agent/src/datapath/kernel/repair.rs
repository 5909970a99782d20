//! Making again, while the agent runs, what somebody has unpinned.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::{KernelDatapath, Start, error_of, pins_error};
use crate::datapath::cgroups::open_cgroup;
use crate::datapath::links;
use crate::datapath::pins::{self, PinsError, unpin};
use crate::datapath::plan::{CgroupProgram, MAPS, NODE, PROXY};
use crate::ports::{PortError, Repaired};

impl KernelDatapath {
    /// See [`crate::ports::Datapath::repair`].
    pub(super) fn make_again(&mut self) -> Result<Repaired, PortError> {
        let mut repaired = Repaired {
            moved: self.follow_pins().map_err(|error| pins_error(&error))?,
            ..Repaired::default()
        };
        self.pins.make_folders().map_err(|error| pins_error(&error))?;
        let is_lost = |name: &&&str| !self.object.is_pinned(name, &self.pins.map(name));
        for name in MAPS.iter().filter(is_lost) {
            let pin = self.pins.map(name);
            unpin(&pin).map_err(|error| pins_error(&error))?;
            self.object
                .pin_map(name, &pin)
                .map_err(|error| error_of("pin map", name, &error, true))?;
            repaired.made.push(format!("map {name}"));
        }
        let root = [(None, &self.config.cgroup_root)];
        let proxies = self.proxies.iter().map(|(id, path)| (Some(*id), path));
        for (proxy, path) in root.into_iter().chain(proxies) {
            // A proxy's cgroup that is gone needs no links.
            let Ok((cgroup, id)) = open_cgroup(path) else {
                continue;
            };
            let (folder, programs) = match proxy {
                None => (self.pins.node_links(), NODE),
                Some(known) if known == id => (self.pins.proxy_links(id), PROXY),
                Some(_) => continue,
            };
            let is_missing = |program: &&CgroupProgram| !links::is_attached(&folder.join(program.name), id);
            for program in programs.iter().filter(is_missing) {
                std::fs::create_dir_all(&folder)
                    .map_err(|error| error_of("make", folder.display(), &error, true))?;
                self.attach_program(&folder, *program, &cgroup, id, &mut Start::default())?;
                repaired.made.push(format!("link {}", program.name));
            }
        }
        let with_link = self.store.entries().filter(|entry| entry.inbound);
        let without = with_link.filter(|entry| !self.pins.pod_link(entry.netns).exists());
        repaired.lost = without.map(|entry| entry.netns).collect();
        Ok(repaired)
    }

    /// When the folder of all pins is another one, because its bpffs was unmounted or the folder removed: takes it, and
    /// brings the pins along. The lock on the old folder keeps that bpffs, and so all that is pinned in it, until then.
    /// Returns how many pins came along.
    fn follow_pins(&mut self) -> Result<usize, PinsError> {
        let folder = self.pins.all_versions();
        let identity = |file: File| file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
        let now = File::open(&folder).ok().and_then(identity);
        if now.is_some() && now == self.lock.try_clone().ok().and_then(identity) {
            return Ok(0);
        }
        self.pins.prepare(self.config.may_mount)?;
        let lock = self.pins.lock()?;
        let old = PathBuf::from(format!("/proc/self/fd/{}", self.lock.as_raw_fd()));
        let moved = pins::move_all(&old, &folder)?;
        self.lock = lock;
        Ok(moved)
    }
}
