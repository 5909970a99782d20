//! Making again, while the agent runs, what somebody has unpinned.

use super::{KernelDatapath, Start, error_of, pins_error};
use crate::datapath::links;
use crate::datapath::plan::{CgroupProgram, MAPS, NODE, PROXY};
use crate::ports::{PortError, Repaired};

impl KernelDatapath {
    /// See [`crate::ports::Datapath::repair`].
    pub(super) fn make_again(&self) -> Result<Repaired, PortError> {
        let mut repaired = Repaired::default();
        self.pins.make_folders().map_err(|error| pins_error(&error))?;
        for name in MAPS.iter().filter(|name| !self.pins.map(name).exists()) {
            self.object
                .pin_map(name, &self.pins.map(name))
                .map_err(|error| error_of("pin map", name, &error, true))?;
            repaired.made.push(format!("map {name}"));
        }
        let root = [(None, &self.config.cgroup_root)];
        let proxies = self.proxies.iter().map(|(id, path)| (Some(*id), path));
        for (proxy, path) in root.into_iter().chain(proxies) {
            // A proxy's cgroup that is gone needs no links.
            let Ok((cgroup, id)) = links::open_cgroup(path) else {
                continue;
            };
            let (folder, programs) = match proxy {
                None => (self.pins.node_links(), NODE),
                Some(known) if known == id => (self.pins.proxy_links(id), PROXY),
                Some(_) => continue,
            };
            let is_missing = |program: &&CgroupProgram| !folder.join(program.name).exists();
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
}
