//! The main job from a real API server's watch events.

mod enrolment;
mod outages;
mod scene;
