//! The main job from a real API server's watch events.

mod admission;
mod departure;
mod enrolment;
mod events;
mod istio;
mod outages;
mod scene;
