//! promtool, which checks the alert rules and the metrics: out of Debian's package of Prometheus, which is not installed,
//! because it would start a server.

use super::Item;
use super::kept::Kept;
use crate::apt;

/// Its place within the package.
const IN_PACKAGE: &str = "usr/bin/promtool";

pub(crate) const PROMTOOL: Kept = Kept {
    variable: "MESHGATE_PROMTOOL",
    place: "promtool",
};

pub(super) const ITEM: Item = Item {
    name: "promtool",
    purpose: "tests of the alert rules, the dashboard and the metrics",
    find: |_| PROMTOOL.find().map(|binary| binary.display().to_string()),
    bring: |workspace| {
        PROMTOOL.bring(|folder| {
            apt::unpack(workspace, "prometheus", folder)?;
            Ok(folder.join(IN_PACKAGE))
        })
    },
    by_hand: "take promtool out of a release of Prometheus and set MESHGATE_PROMTOOL to it",
};
